-- The lines of charts: what each counted in the `span` seconds from `at` on, added up over all workers; of a gauge, the
-- greatest value.
CREATE TABLE service_series (
    span INTEGER NOT NULL,
    series TEXT NOT NULL,
    at BIGINT NOT NULL,
    value DOUBLE PRECISION NOT NULL,
    PRIMARY KEY (span, series, at)
);
CREATE INDEX service_series_at ON service_series (span, at);
