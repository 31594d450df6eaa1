-- The event log. Rows are only added, apart from the labels of erased contexts; `seq` is one order over all tables.
-- Times are microseconds since 1970, UTC. The key of an experiment is the seq of the change that created it.

create table position (last integer not null) strict;
insert into position values (0);

create table change (
    seq integer primary key,
    experiment integer not null,
    kind text not null,
    body text not null,          -- JSON
    state blob,                  -- of a policy, where the change has one
    at integer not null
) strict;

create table context (
    experiment integer not null,
    number integer not null,
    label text,                  -- null once erased
    primary key (experiment, number),
    unique (experiment, label)
) strict, without rowid;

create table decision (
    seq integer primary key,
    id text not null unique,
    experiment integer not null,
    context integer not null,
    arm integer not null,
    propensity real not null,
    state_version integer not null,   -- the last position applied to memory when the arm was drawn
    policy_version integer not null,  -- the last change of the experiment at that time
    deferred integer not null,
    available blob,                   -- a bit per arm, where not all arms were available
    probabilities blob,               -- under full information: a float64 per arm
    at integer not null
) strict;

create table activation (
    seq integer primary key,
    decision integer not null unique,
    at integer not null
) strict;

create table reward (
    seq integer primary key,
    decision integer not null unique,
    reward real,                      -- null: closed without one, or a value per arm
    source text not null,             -- client, default, expired, lapsed, rollback
    rewards blob,                     -- under full information: a float64 per arm
    at integer not null
) strict;

create table late_reward (            -- arrived after the decision was closed; no policy learns from it
    seq integer primary key,
    decision integer not null unique,
    reward real,
    rewards blob,
    at integer not null
) strict;

create table snapshot (               -- saves time when a file is opened; the log alone leads to the same state
    experiment integer not null,
    seq integer not null,
    code_version text not null,
    tally text not null,              -- JSON
    state blob not null,
    primary key (experiment, seq)
) strict;
