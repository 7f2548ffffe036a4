-- What is probed, and what was found. Moments are seconds of UTC; JSON is text.

-- Targets that were added over the API; those of the settings are not here.
CREATE TABLE probes_targets (
    name TEXT NOT NULL PRIMARY KEY,
    definition TEXT NOT NULL,
    made DOUBLE PRECISION NOT NULL,
    made_by TEXT NOT NULL
);

-- Targets that are paused, of either kind.
CREATE TABLE probes_pauses (
    target TEXT NOT NULL PRIMARY KEY,
    at DOUBLE PRECISION NOT NULL,
    made_by TEXT NOT NULL,
    reason TEXT NOT NULL
);

-- targets: a list of names; empty: all of them.
CREATE TABLE probes_maintenance (
    id TEXT NOT NULL PRIMARY KEY,
    targets TEXT NOT NULL,
    starts DOUBLE PRECISION NOT NULL,
    ends DOUBLE PRECISION NOT NULL,
    made DOUBLE PRECISION NOT NULL,
    made_by TEXT NOT NULL,
    reason TEXT NOT NULL
);

CREATE INDEX probes_maintenance_by_end ON probes_maintenance (ends);

-- The state of each target by its latest result. fence: that of the mutex under which the result was found; a result
-- with a smaller one came too late. before: the state before the latest result. announced: the state that people were
-- notified of.
CREATE TABLE probes_states (
    target TEXT NOT NULL PRIMARY KEY,
    fence BIGINT NOT NULL,
    state TEXT NOT NULL,
    before TEXT NOT NULL,
    since DOUBLE PRECISION NOT NULL,
    failures BIGINT NOT NULL,
    successes BIGINT NOT NULL,
    failure_threshold BIGINT NOT NULL,
    success_threshold BIGINT NOT NULL,
    at DOUBLE PRECISION NOT NULL,
    passed INTEGER NOT NULL,
    error TEXT NOT NULL,
    status INTEGER,
    seconds DOUBLE PRECISION NOT NULL,
    certificate_expires DOUBLE PRECISION,
    announced TEXT NOT NULL
);

-- due: the moment for which the probe was scheduled; NULL if somebody asked for it.
CREATE TABLE probes_results (
    target TEXT NOT NULL,
    fence BIGINT NOT NULL,
    at DOUBLE PRECISION NOT NULL,
    due DOUBLE PRECISION,
    passed INTEGER NOT NULL,
    error TEXT NOT NULL,
    status INTEGER,
    seconds DOUBLE PRECISION NOT NULL,
    phases TEXT NOT NULL,
    PRIMARY KEY (target, fence)
);

CREATE INDEX probes_results_by_time ON probes_results (at);

-- Sums of the hour or day that began at this moment; span: its seconds.
CREATE TABLE probes_sums (
    target TEXT NOT NULL,
    span BIGINT NOT NULL,
    begins BIGINT NOT NULL,
    up BIGINT NOT NULL,
    down BIGINT NOT NULL,
    seconds DOUBLE PRECISION NOT NULL,
    slowest DOUBLE PRECISION NOT NULL,
    PRIMARY KEY (target, span, begins)
);

CREATE INDEX probes_sums_by_time ON probes_sums (span, begins);
