-- The log. Rows are added and never changed, but for the labels of erased contexts; `seq` is one order over all tables.
-- Times are microseconds since 1970, UTC. An experiment is known by the seq of the change that created it.

create table position (last integer not null) strict;
insert into position values (0);

create table change (
    seq integer primary key,
    experiment integer not null,
    kind text not null,
    body text not null,          -- JSON
    state blob,                  -- of a policy, where the change brings one
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
    state_version integer not null,   -- the position that was folded when the arm was drawn
    policy_version integer not null,  -- the last change of the experiment then
    deferred integer not null,
    available blob,                   -- a bit per arm, where some could not be played
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
    source text not null,             -- client, default, expired, rollback
    rewards blob,                     -- under full information: a float64 per arm
    at integer not null
) strict;

create table late_reward (            -- came after the waiting time; written down, not learned from
    seq integer primary key,
    decision integer not null unique,
    reward real,
    rewards blob,
    at integer not null
) strict;

create table snapshot (               -- not the truth, a short cut to it
    experiment integer not null,
    seq integer not null,
    code_version text not null,
    tally text not null,              -- JSON
    state blob not null,
    primary key (experiment, seq)
) strict;
