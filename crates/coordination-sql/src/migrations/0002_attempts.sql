-- Attempts of the inbox are those that began; those that began and never ended are counted apart.

ALTER TABLE {inbox} ADD COLUMN begun {flag};
ALTER TABLE {inbox} ADD COLUMN lost_attempts BIGINT NOT NULL DEFAULT 0;
CREATE INDEX {index:inbox_due_of_topic} ON {inbox} (topic, place) WHERE state = 'due';

-- Until now every claim counted, handled or not: what is unfinished has all its attempts.
UPDATE {inbox} SET attempts_at_revival = attempts WHERE state IN ('waiting', 'due', 'claimed');
-- And what was rescheduled had not been said to begin.
UPDATE {outbox} SET attempts = retry_count
WHERE state IN ('waiting', 'due', 'claimed') AND attempts < retry_count;

-- By which moment a job's next tick was found. A moment that is still to come was never there: the
-- clock was ahead when the tick was found.
ALTER TABLE {jobs} ADD COLUMN ticked_at BIGINT NOT NULL DEFAULT 0;
-- Of those there are nobody knows: the end of the calendar makes the next worker find them again.
UPDATE {jobs} SET ticked_at = 253402207200000000;
CREATE INDEX {index:jobs_ticked_at} ON {jobs} (ticked_at);
