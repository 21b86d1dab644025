-- Version 4: a write that travels together with its COMMIT is noted with the id of the row that it added, for whoever lost the
-- answer.

ALTER TABLE applied_writes ADD COLUMN row_id bigint;
