-- How often the browsers of a key were signed out: part of what their cookies sign, so that older cookies are refused.

alter table api_key add column epoch bigint not null default 0;
