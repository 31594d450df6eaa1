alter table decision add column slate {bytes};  -- of several arms: see `slates.py`; `arm`, `propensity` are of slot 1

create index decision_slate on decision (event) where slate is not null;

create table slate_reward (           -- rewards of some arms of a slate that arrived together, or its end without them
    {event},
    decision {int} not null,
    source text not null,             -- client, default, expired, lapsed, rollback
    rewards {bytes},                  -- a float64 per slot, NaN where there is none; null: closed without any
    remaining {int} not null,         -- shown arms that are still without a reward; 0: the decision is settled
    at {int} not null,
    unique (decision, position)
) {strict};
