-- What the alert receiver records beside its reservations: notifications, suppressed alerts, and silences.
-- Moments are seconds of UTC; JSON is text.

-- One row per notification. notified: when the first publisher had it. results: publisher → "ok", or its last error.
-- group_name: the group of the alert, by which a resolve that does not name its group finds it.
CREATE TABLE alerts_history (
    id TEXT NOT NULL PRIMARY KEY,
    at DOUBLE PRECISION NOT NULL,
    notified DOUBLE PRECISION,
    outcome TEXT NOT NULL,
    fingerprint TEXT NOT NULL,
    severity TEXT NOT NULL,
    status TEXT NOT NULL,
    name TEXT NOT NULL,
    source TEXT NOT NULL,
    labels TEXT NOT NULL,
    annotations TEXT NOT NULL,
    results TEXT NOT NULL,
    seconds DOUBLE PRECISION,
    trace TEXT NOT NULL,
    group_name TEXT NOT NULL
);

-- Newest first, of all and of one fingerprint; also for the deletion of old rows.
CREATE INDEX alerts_history_by_time ON alerts_history (at, id);
CREATE INDEX alerts_history_by_fingerprint ON alerts_history (fingerprint, at, id);

-- How many alerts were suppressed in the hour that began at this moment, when the last one was, and a sample of them.
CREATE TABLE alerts_suppressed (
    fingerprint TEXT NOT NULL,
    severity TEXT NOT NULL,
    reason TEXT NOT NULL,
    hour BIGINT NOT NULL,
    count BIGINT NOT NULL,
    last DOUBLE PRECISION NOT NULL,
    name TEXT NOT NULL,
    source TEXT NOT NULL,
    labels TEXT NOT NULL,
    group_name TEXT NOT NULL,
    PRIMARY KEY (fingerprint, severity, reason, hour)
);

CREATE INDEX alerts_suppressed_by_hour ON alerts_suppressed (hour);

-- matchers: a list of texts such as severity="critical".
CREATE TABLE alerts_silences (
    id TEXT NOT NULL PRIMARY KEY,
    matchers TEXT NOT NULL,
    starts DOUBLE PRECISION NOT NULL,
    ends DOUBLE PRECISION NOT NULL,
    made DOUBLE PRECISION NOT NULL,
    made_by TEXT NOT NULL,
    reason TEXT NOT NULL,
    ended_by TEXT NOT NULL,
    ended_why TEXT NOT NULL
);

CREATE INDEX alerts_silences_by_end ON alerts_silences (ends);
