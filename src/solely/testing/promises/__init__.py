"""The promises of a store, by topic. `StoreContract` gathers them; read them as the store's specification."""
