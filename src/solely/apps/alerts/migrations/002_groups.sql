-- The group in which an alert came, so that people find the others, and what is over without saying its group is known.
ALTER TABLE alerts_history ADD COLUMN group_name TEXT NOT NULL DEFAULT '';
ALTER TABLE alerts_suppressed ADD COLUMN group_name TEXT NOT NULL DEFAULT '';
