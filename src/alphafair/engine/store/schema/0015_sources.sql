alter table decision add column decided_by text;    -- who decided, if not the policy: the label of a source
alter table decision add column features {bytes};   -- a float64 per declared feature
alter table decision add column bucket {int};       -- of the unit that the decision was made for, from 0 to 63

create index decision_source on decision (decided_by, event) where decided_by is not null;
