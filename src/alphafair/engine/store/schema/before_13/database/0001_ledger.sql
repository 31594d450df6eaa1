-- The event log. Rows are only added, apart from the labels of erased contexts. Every experiment has a log of its own:
-- `seq` is one order over all tables, from 1 on, and `position` has the last one. Times are microseconds since 1970, UTC.

create sequence experiment_key;

create table position (
    experiment bigint primary key,
    name text not null unique,
    last bigint not null,
    at bigint not null                -- of the last event
);

create table change (
    experiment bigint not null,
    seq bigint not null,
    kind text not null,
    body text not null,               -- JSON
    state bytea,                      -- of a policy, where the change has one
    at bigint not null,
    by text,                          -- the name of a key, or of a user; null: not recorded
    primary key (experiment, seq)
);

create table context (
    experiment bigint not null,
    number bigint not null,
    label text,                       -- null once erased
    primary key (experiment, number),
    unique (experiment, label)
);

create table decision (
    experiment bigint not null,
    seq bigint not null,
    id text not null,
    context bigint not null,
    arm bigint not null,
    propensity double precision not null,
    state_version bigint not null,    -- the last position applied to memory when the arm was drawn
    policy_version bigint not null,   -- the last change of the experiment at that time
    deferred smallint not null,
    available bytea,                  -- a bit per arm, where not all arms were available
    probabilities bytea,              -- under full information: a float64 per arm
    at bigint not null,
    checksum bigint,                  -- see `checksum` in verify.py; null for decisions of old versions, or erased
    primary key (experiment, seq),
    unique (id, experiment)
);

create table activation (
    experiment bigint not null,
    seq bigint not null,
    decision bigint not null,
    at bigint not null,
    primary key (experiment, seq),
    unique (experiment, decision)
);

create table reward (
    experiment bigint not null,
    seq bigint not null,
    decision bigint not null,
    reward double precision,          -- null: closed without one, or a value per arm
    source text not null,             -- client, default, expired, lapsed, rollback
    rewards bytea,                    -- under full information: a float64 per arm
    at bigint not null,
    primary key (experiment, seq),
    unique (experiment, decision)
);

create table late_reward (            -- arrived after the decision was closed; no policy learns from it
    experiment bigint not null,
    seq bigint not null,
    decision bigint not null,
    reward double precision,
    rewards bytea,
    at bigint not null,
    primary key (experiment, seq),
    unique (experiment, decision)
);

create table snapshot (               -- saves time when a ledger is opened; the log alone leads to the same state
    experiment bigint not null,
    seq bigint not null,
    code_version text not null,
    tally text not null,              -- JSON
    state bytea not null,
    node text not null,               -- the process that wrote it, whose pieces belong to it
    primary key (experiment, seq)
);

create table snapshot_piece (         -- a large state is written in pieces, the last one in `snapshot`
    experiment bigint not null,
    seq bigint not null,
    node text not null,
    number bigint not null,           -- from 0 on
    bytes bytea not null,
    primary key (experiment, seq, node, number)
);

-- Keys of the service: the hash of every secret, never the secret itself. Not part of the event log.

create table api_key (
    id text primary key,
    name text not null,
    role text not null check (role in ('metrics', 'read', 'write', 'log', 'admin')),
    experiments text,                 -- JSON, a list of names; null: all
    hash bytea not null,              -- SHA-256
    created_at bigint not null,
    created_by text,
    expires_at bigint,                -- null: never
    revoked_at bigint,                -- null while the key was not revoked
    revoked_by text
);
