-- Counts saved with states: decisions that got the default reward, that lapsed, or that a rollback closed get counters of
-- their own. They are counted once from the event log; a state without such decisions needs no update.

create temp table settled as
    select experiment, seq, sum(source = 'default') as defaulted, sum(source = 'expired') as expired,
        sum(source = 'lapsed') as lapsed, sum(source = 'rollback') as rolled_back
    from (
        select state.experiment, state.seq, r.source from reward r join decision d on d.seq = r.decision join (
            select experiment, seq from snapshot
            union select experiment, seq from change where kind in ('rollback', 'upgrade')
        ) as state on state.experiment = d.experiment and state.seq >= r.seq
        where r.source <> 'client'
    )
    group by experiment, seq;

update snapshot set tally = json_set(tally, '$.defaulted', s.defaulted, '$.expired', s.expired, '$.lapsed', s.lapsed,
        '$.rolled_back', s.rolled_back)
    from settled s where s.experiment = snapshot.experiment and s.seq = snapshot.seq;

update change set body = json_set(body, '$.tally', json_set(json_extract(body, '$.tally'), '$.defaulted', s.defaulted,
        '$.expired', s.expired, '$.lapsed', s.lapsed, '$.rolled_back', s.rolled_back) || '')  -- || '': as a string
    from settled s where change.kind in ('rollback', 'upgrade') and s.experiment = change.experiment
        and s.seq = change.seq;

drop table temp.settled;
