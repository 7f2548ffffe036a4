-- What was received, by key, origin and outcome: `queued`, or why it was not. One row for any number of repeats.
CREATE TABLE repos_received (
    key TEXT NOT NULL,
    origin TEXT NOT NULL,
    outcome TEXT NOT NULL,
    forge TEXT NOT NULL,
    kind TEXT NOT NULL,
    project TEXT NOT NULL,
    title TEXT NOT NULL,
    first DOUBLE PRECISION NOT NULL,
    last DOUBLE PRECISION NOT NULL,
    times BIGINT NOT NULL,
    PRIMARY KEY (key, origin, outcome)
);

-- Newest first, and for the deletion of old rows.
CREATE INDEX repos_received_by_time ON repos_received (last, key);
