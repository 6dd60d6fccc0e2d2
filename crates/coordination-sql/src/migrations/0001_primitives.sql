-- Outbox, inbox, scheduler and leases.
--
-- Moments are microseconds since 1970, identities ULIDs as text. A work item's state is one of
--   waiting   not seen to be due yet          due       can be claimed
--   claimed   by `owner`, until `claimed_until`
--   done, dead   since `finished_at`
-- Each state has indexes of its own, so that a claim looks only at what is due, a reap only at what
-- has run out and a purge only at what is old, however many items are kept.

CREATE TABLE {outbox} (
    place {place},
    id {id},
    state TEXT NOT NULL,
    due_at BIGINT NOT NULL,
    owner {name},
    claimed_until BIGINT,
    finished_at BIGINT,
    topic {name} NOT NULL,
    payload {bytes} NOT NULL,
    correlation_id {name},
    retry_count BIGINT NOT NULL DEFAULT 0,
    attempts BIGINT NOT NULL DEFAULT 0,
    -- Whether an attempt began under the present claim.
    begun {flag},
    last_error TEXT NOT NULL DEFAULT '',
    outcome {bytes}
) {swept_often};
CREATE INDEX {index:outbox_due} ON {outbox} (place) WHERE state = 'due';
CREATE INDEX {index:outbox_due_of_topic} ON {outbox} (topic, place) WHERE state = 'due';
CREATE INDEX {index:outbox_due_since} ON {outbox} (due_at) WHERE state = 'due';
CREATE INDEX {index:outbox_waiting} ON {outbox} (due_at) WHERE state = 'waiting';
CREATE INDEX {index:outbox_waiting_of_topic} ON {outbox} (topic, due_at) WHERE state = 'waiting';
CREATE INDEX {index:outbox_claimed} ON {outbox} (claimed_until) WHERE state = 'claimed';
CREATE INDEX {index:outbox_finished} ON {outbox} (finished_at) WHERE state IN ('done', 'dead');

CREATE TABLE {joins} (
    id {name} NOT NULL PRIMARY KEY,
    expected BIGINT NOT NULL,
    started_at BIGINT NOT NULL
);
CREATE INDEX {index:joins_started} ON {joins} (started_at);

-- A member's outcome is its message's state; here it is kept once the message is purged, or if the
-- message was finished before the join started.
CREATE TABLE {join_members} (
    join_id {name} NOT NULL,
    message_id {name} NOT NULL,
    outcome TEXT,
    PRIMARY KEY (join_id, message_id)
);
CREATE INDEX {index:join_members_open} ON {join_members} (message_id) WHERE outcome IS NULL;
CREATE INDEX {index:join_members_open_of_join} ON {join_members} (join_id) WHERE outcome IS NULL;

-- An identity is the source, a tab, and the source's message ID; names have no control characters.
CREATE TABLE {inbox} (
    place {place},
    id {id},
    state TEXT NOT NULL,
    due_at BIGINT NOT NULL,
    owner {name},
    claimed_until BIGINT,
    finished_at BIGINT,
    topic {name} NOT NULL,
    payload {bytes} NOT NULL,
    correlation_id {name},
    hash {bytes},
    attempts BIGINT NOT NULL DEFAULT 0,
    attempts_at_revival BIGINT NOT NULL DEFAULT 0,
    last_error TEXT NOT NULL DEFAULT ''
) {swept_often};
CREATE INDEX {index:inbox_due} ON {inbox} (place) WHERE state = 'due';
CREATE INDEX {index:inbox_due_since} ON {inbox} (due_at) WHERE state = 'due';
CREATE INDEX {index:inbox_waiting} ON {inbox} (due_at) WHERE state = 'waiting';
CREATE INDEX {index:inbox_claimed} ON {inbox} (claimed_until) WHERE state = 'claimed';
CREATE INDEX {index:inbox_finished} ON {inbox} (finished_at) WHERE state IN ('done', 'dead');

CREATE TABLE {timers} (
    place {place},
    id {id},
    state TEXT NOT NULL,
    due_at BIGINT NOT NULL,
    owner {name},
    claimed_until BIGINT,
    finished_at BIGINT,
    topic {name} NOT NULL,
    payload {bytes} NOT NULL,
    correlation_id {name},
    attempts BIGINT NOT NULL DEFAULT 0
) {swept_often};
CREATE INDEX {index:timers_due} ON {timers} (place) WHERE state = 'due';
CREATE INDEX {index:timers_due_since} ON {timers} (due_at) WHERE state = 'due';
CREATE INDEX {index:timers_waiting} ON {timers} (due_at) WHERE state = 'waiting';
CREATE INDEX {index:timers_claimed} ON {timers} (claimed_until) WHERE state = 'claimed';
CREATE INDEX {index:timers_finished} ON {timers} (finished_at) WHERE state IN ('done', 'dead');

CREATE TABLE {jobs} (
    name {name} NOT NULL PRIMARY KEY,
    topic {name} NOT NULL,
    payload {bytes} NOT NULL,
    cron TEXT NOT NULL,
    time_zone TEXT NOT NULL,
    -- The most runs that missed ticks become; none is one run for all of them.
    catch_up_max BIGINT,
    -- None once the calendar has ended.
    next_tick BIGINT
);
CREATE INDEX {index:jobs_next_tick} ON {jobs} (next_tick);

CREATE TABLE {job_runs} (
    place {place},
    id {id},
    state TEXT NOT NULL,
    due_at BIGINT NOT NULL,
    owner {name},
    claimed_until BIGINT,
    finished_at BIGINT,
    job {name} NOT NULL,
    scheduled_at BIGINT NOT NULL,
    attempts BIGINT NOT NULL DEFAULT 0,
    UNIQUE (job, scheduled_at)
) {swept_often};
CREATE INDEX {index:job_runs_due} ON {job_runs} (place) WHERE state = 'due';
CREATE INDEX {index:job_runs_due_since} ON {job_runs} (due_at) WHERE state = 'due';
CREATE INDEX {index:job_runs_waiting} ON {job_runs} (due_at) WHERE state = 'waiting';
CREATE INDEX {index:job_runs_claimed} ON {job_runs} (claimed_until) WHERE state = 'claimed';
CREATE INDEX {index:job_runs_finished} ON {job_runs} (finished_at) WHERE state IN ('done', 'dead');

-- The largest fencing token that work was done under.
CREATE TABLE {fences} (
    resource {name} NOT NULL PRIMARY KEY,
    token BIGINT NOT NULL
);

-- A row stays when nobody holds its resource: its token must never begin anew.
CREATE TABLE {leases} (
    resource {name} NOT NULL PRIMARY KEY,
    owner {name} NOT NULL,
    -- The first token of the tenure, and the newest.
    since BIGINT NOT NULL,
    token BIGINT NOT NULL,
    held_until BIGINT NOT NULL
);
