-- Every statement of charts, by name.

-- name: add
INSERT INTO service_series (span, series, at, value) VALUES (:span, :series, :at, :value)
ON CONFLICT (span, series, at) DO UPDATE SET value = service_series.value + excluded.value

-- name: raise
INSERT INTO service_series (span, series, at, value) VALUES (:span, :series, :at, :value)
ON CONFLICT (span, series, at) DO UPDATE SET value = excluded.value WHERE excluded.value > service_series.value

-- name: begin
INSERT INTO service_series (span, series, at, value) VALUES (:span, :series, :at, 1) ON CONFLICT DO NOTHING

-- name: lines (sqlite)
SELECT series, at, value FROM service_series
WHERE span = :span AND series IN (SELECT value FROM json_each(:names)) AND at >= :since ORDER BY at

-- name: lines (postgresql)
SELECT series, at, value FROM service_series
WHERE span = :span AND series IN (SELECT json_array_elements_text(CAST(:names AS json))) AND at >= :since ORDER BY at

-- name: forget
DELETE FROM service_series WHERE (span, series, at) IN (
    SELECT span, series, at FROM service_series WHERE span = :span AND at < :before LIMIT :page
)
