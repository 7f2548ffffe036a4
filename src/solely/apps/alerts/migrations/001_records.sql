-- What the alert receiver remembers beside its reservations: what was told, what was suppressed, and what is silenced.
-- Moments are seconds of UTC; JSON is text.

-- One row per notification. results: publisher → "ok", or the error of its last try.
CREATE TABLE alerts_history (
    id TEXT NOT NULL PRIMARY KEY,
    at DOUBLE PRECISION NOT NULL,
    told DOUBLE PRECISION,
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
    trace TEXT NOT NULL
);

-- Newest first, of all and of one fingerprint; also what is too old to be kept.
CREATE INDEX alerts_history_by_time ON alerts_history (at, id);
CREATE INDEX alerts_history_by_fingerprint ON alerts_history (fingerprint, at, id);

-- How many were suppressed in the hour that began at this moment, when the last of them was, and what one was like.
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
