-- An id belongs to one experiment: a request with one id may ask for decisions in several. SQLite cannot drop a
-- constraint, so the table is created again.

create table new_decision (
    seq integer primary key,
    id text not null,
    experiment integer not null,
    context integer not null,
    arm integer not null,
    propensity real not null,
    state_version integer not null,   -- the last position applied to memory when the arm was drawn
    policy_version integer not null,  -- the last change of the experiment at that time
    deferred integer not null,
    available blob,                   -- a bit per arm, where not all arms were available
    probabilities blob,               -- under full information: a float64 per arm
    at integer not null,
    checksum integer,                 -- see `checksum` in verify.py; null for decisions of old versions, or erased
    unique (id, experiment)
) strict;

insert into new_decision select seq, id, experiment, context, arm, propensity, state_version, policy_version, deferred,
    available, probabilities, at, checksum from decision order by seq;
drop table decision;
alter table new_decision rename to decision;
