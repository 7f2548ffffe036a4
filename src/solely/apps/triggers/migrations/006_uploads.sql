-- Payloads that trigger.dev's client stores before it triggers, until they are too old. kind: their media type, as sent;
-- content: their text as a JSON string, which may hold NUL where a text of PostgreSQL may not.
CREATE TABLE triggers_uploads (
    environment TEXT NOT NULL,
    owner TEXT NOT NULL,
    name TEXT NOT NULL,
    at DOUBLE PRECISION NOT NULL,
    size INTEGER NOT NULL,
    kind TEXT NOT NULL,
    content TEXT NOT NULL,
    PRIMARY KEY (environment, owner, name)
);
CREATE INDEX triggers_uploads_by_time ON triggers_uploads (environment, at, size);
