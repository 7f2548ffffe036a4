-- Signals that producers posted, and what became of the groups. Moments are seconds of UTC; JSON is text.

-- One row per signal. A repeat of its write finds its id. acknowledged: when a consumer has processed it.
CREATE TABLE signals_signals (
    id TEXT NOT NULL PRIMARY KEY,
    house TEXT NOT NULL,
    game TEXT NOT NULL,
    username TEXT NOT NULL,
    priority DOUBLE PRECISION NOT NULL,
    at DOUBLE PRECISION NOT NULL,
    signal TEXT NOT NULL,
    leased_until DOUBLE PRECISION NOT NULL,
    acknowledged DOUBLE PRECISION
);

-- The next one: the most urgent first, then the oldest.
CREATE INDEX signals_signals_waiting ON signals_signals (priority DESC, at, id) WHERE acknowledged IS NULL;
CREATE INDEX signals_signals_acknowledged ON signals_signals (acknowledged) WHERE acknowledged IS NOT NULL;

-- Sums of the minute that began at this moment.
CREATE TABLE signals_minutes (
    minute BIGINT NOT NULL,
    house TEXT NOT NULL,
    game TEXT NOT NULL,
    generated BIGINT NOT NULL,
    deduplicated BIGINT NOT NULL,
    acquired BIGINT NOT NULL,
    contended BIGINT NOT NULL,
    dead_lettered BIGINT NOT NULL,
    seconds DOUBLE PRECISION NOT NULL,
    last DOUBLE PRECISION NOT NULL,
    PRIMARY KEY (minute, house, game)
);
