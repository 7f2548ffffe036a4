-- What the overview counts, each up to `most`, so that a page costs the same however many runs there are.

-- name: counts
SELECT
    (SELECT COUNT(*) FROM (SELECT 1 FROM triggers_runs WHERE environment = :environment AND state = 'QUEUED'
        LIMIT :most) AS counted) AS queued,
    (SELECT COUNT(*) FROM (SELECT 1 FROM triggers_runs WHERE environment = :environment AND state = 'DELAYED'
        LIMIT :most) AS counted) AS delayed,
    (SELECT COUNT(*) FROM (SELECT 1 FROM triggers_runs WHERE environment = :environment AND state = 'WAITING'
        LIMIT :most) AS counted) AS parents,
    (SELECT COUNT(*) FROM (SELECT 1 FROM triggers_runs WHERE environment = :environment AND state = 'EXECUTING'
        LIMIT :most) AS counted) AS executing,
    (SELECT COUNT(*) FROM (SELECT 1 FROM triggers_runs WHERE environment = :environment AND state = 'EXECUTING'
        AND lease_until <= :now LIMIT :most) AS counted) AS abandoned,
    (SELECT COUNT(*) FROM (SELECT 1 FROM triggers_runs WHERE environment = :environment AND state = 'FAILED'
        AND available_at >= :since LIMIT :most) AS counted) AS failed
