"""The promises of a store, by topic: its specification as tests. `StoreContract` combines them."""
