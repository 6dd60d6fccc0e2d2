-- Retention by topic, dead items apart; and what has become due is noticed in batches.

-- A purge looks at one topic and one outcome, however many items of other topics are kept.
DROP INDEX {outbox_finished};
CREATE INDEX {index:outbox_done_of_topic} ON {outbox} (topic, finished_at) WHERE state = 'done';
CREATE INDEX {index:outbox_dead_of_topic} ON {outbox} (topic, finished_at) WHERE state = 'dead';
DROP INDEX {inbox_finished};
CREATE INDEX {index:inbox_done_of_topic} ON {inbox} (topic, finished_at) WHERE state = 'done';
CREATE INDEX {index:inbox_dead_of_topic} ON {inbox} (topic, finished_at) WHERE state = 'dead';

-- A batch takes what is due for longest, and in the order of creation what became due together.
DROP INDEX {outbox_waiting};
CREATE INDEX {index:outbox_waiting} ON {outbox} (due_at, place) WHERE state = 'waiting';
DROP INDEX {outbox_waiting_of_topic};
CREATE INDEX {index:outbox_waiting_of_topic} ON {outbox} (topic, due_at, place)
    WHERE state = 'waiting';
DROP INDEX {inbox_waiting};
CREATE INDEX {index:inbox_waiting} ON {inbox} (due_at, place) WHERE state = 'waiting';
CREATE INDEX {index:inbox_waiting_of_topic} ON {inbox} (topic, due_at, place)
    WHERE state = 'waiting';
DROP INDEX {timers_waiting};
CREATE INDEX {index:timers_waiting} ON {timers} (due_at, place) WHERE state = 'waiting';
DROP INDEX {job_runs_waiting};
CREATE INDEX {index:job_runs_waiting} ON {job_runs} (due_at, place) WHERE state = 'waiting';

-- A join is forgotten with the last of its messages.
CREATE INDEX {index:join_members_of_message} ON {join_members} (message_id);
DROP INDEX {join_members_open};
DROP INDEX {joins_started};
DELETE FROM {join_members} WHERE join_id IN (
    SELECT old.id FROM {joins} AS old WHERE NOT EXISTS (
        SELECT 1 FROM {join_members} AS member
        LEFT JOIN {outbox} AS message ON message.id = member.message_id
        WHERE member.join_id = old.id AND (member.outcome IS NULL OR message.id IS NOT NULL)));
DELETE FROM {joins} WHERE NOT EXISTS (
    SELECT 1 FROM {join_members} AS member WHERE member.join_id = {joins}.id);
