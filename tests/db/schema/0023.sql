

SET statement_timeout = 0;
SET lock_timeout = 0;
SET idle_in_transaction_session_timeout = 0;
SET client_encoding = 'UTF8';
SET standard_conforming_strings = on;
SELECT pg_catalog.set_config('search_path', '', false);
SET check_function_bodies = false;
SET xmloption = content;
SET client_min_messages = warning;
SET row_security = off;

CREATE FUNCTION public.zen_moved() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    NEW.moved := pg_current_xact_id()::text::bigint;
    RETURN NEW;
END $$;

SET default_tablespace = '';

SET default_table_access_method = heap;

CREATE TABLE public.alembic_version (
    version_num character varying(32) NOT NULL
);

CREATE TABLE public.alerts (
    alert_id bigint NOT NULL,
    kind text NOT NULL,
    subject text NOT NULL,
    severity text NOT NULL,
    message text NOT NULL,
    raised_at timestamp with time zone NOT NULL,
    last_seen_at timestamp with time zone NOT NULL,
    cleared_at timestamp with time zone,
    count integer NOT NULL,
    CONSTRAINT ck_alerts_count CHECK ((count >= 1))
);

ALTER TABLE public.alerts ALTER COLUMN alert_id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.alerts_alert_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE public.attempts (
    uid uuid NOT NULL,
    attempt integer NOT NULL,
    lease_id text NOT NULL,
    vm_uid uuid NOT NULL,
    vm_name text NOT NULL,
    region text NOT NULL,
    zone text NOT NULL,
    slots jsonb DEFAULT '[]'::jsonb NOT NULL,
    usd_per_hour double precision NOT NULL,
    assigned_at timestamp with time zone NOT NULL,
    started_at timestamp with time zone,
    ended_at timestamp with time zone,
    outcome text DEFAULT ''::text NOT NULL,
    exit_code integer,
    checkpoint_at timestamp with time zone,
    CONSTRAINT ck_attempts_attempt CHECK ((attempt >= 1)),
    CONSTRAINT ck_attempts_ended CHECK (((ended_at IS NULL) = (outcome = ''::text))),
    CONSTRAINT ck_attempts_price CHECK ((usd_per_hour >= (0)::double precision))
);

CREATE TABLE public.cloud_requests (
    request_id text NOT NULL,
    kind text NOT NULL,
    cluster text NOT NULL,
    region text NOT NULL,
    names jsonb DEFAULT '[]'::jsonb NOT NULL,
    reason text NOT NULL,
    created_at timestamp with time zone NOT NULL,
    settled_at timestamp with time zone,
    outcome text DEFAULT ''::text NOT NULL,
    together text DEFAULT ''::text NOT NULL,
    run_s double precision DEFAULT 0 NOT NULL,
    CONSTRAINT ck_cloud_requests_kind CHECK ((kind = ANY (ARRAY['create'::text, 'delete'::text, 'queue'::text, 'unqueue'::text])))
);

CREATE TABLE public.config_files (
    host text NOT NULL,
    path text NOT NULL,
    digest text NOT NULL,
    at timestamp with time zone DEFAULT clock_timestamp() NOT NULL
);

CREATE TABLE public.config_versions (
    version integer NOT NULL,
    at timestamp with time zone NOT NULL,
    author text NOT NULL,
    source text NOT NULL,
    digest text NOT NULL,
    document json NOT NULL,
    diff jsonb DEFAULT '[]'::jsonb NOT NULL,
    CONSTRAINT ck_config_versions_version CHECK ((version >= 1))
);

CREATE TABLE public.cost_daily (
    day date NOT NULL,
    tenant_id text NOT NULL,
    user_id text NOT NULL,
    cluster text NOT NULL,
    region text NOT NULL,
    spot boolean NOT NULL,
    kind text NOT NULL,
    vm_seconds double precision NOT NULL,
    gpu_seconds double precision NOT NULL,
    usd double precision NOT NULL,
    CONSTRAINT ck_cost_daily_amounts CHECK (((vm_seconds >= (0)::double precision) AND (gpu_seconds >= (0)::double precision) AND (usd >= (0)::double precision))),
    CONSTRAINT ck_cost_daily_kind CHECK ((kind = ANY (ARRAY['boot'::text, 'hedge'::text, 'idle'::text, 'lost'::text, 'preempted'::text, 'useful'::text])))
);

CREATE TABLE public.dead_letters (
    message_id text NOT NULL,
    source text NOT NULL,
    body bytea NOT NULL,
    attributes jsonb DEFAULT '{}'::jsonb NOT NULL,
    reason text NOT NULL,
    at timestamp with time zone NOT NULL,
    ordering_key text DEFAULT ''::text NOT NULL,
    replayed_at timestamp with time zone
);

CREATE TABLE public.experience (
    region text NOT NULL,
    zone text NOT NULL,
    machine_type text NOT NULL,
    spot boolean NOT NULL,
    updated_at timestamp with time zone NOT NULL,
    hits double precision NOT NULL,
    misses double precision NOT NULL,
    last text,
    last_at timestamp with time zone,
    deliveries double precision NOT NULL,
    delivery_log_mean double precision NOT NULL,
    delivery_log_var double precision NOT NULL,
    boots double precision NOT NULL,
    boot_log_mean double precision NOT NULL,
    boot_log_var double precision NOT NULL,
    room double precision NOT NULL,
    preempted double precision NOT NULL,
    vm_hours double precision NOT NULL,
    short_kept integer[] DEFAULT '{}'::integer[] NOT NULL,
    short_at timestamp with time zone[] DEFAULT '{}'::timestamp with time zone[] NOT NULL,
    CONSTRAINT ck_experience_last CHECK ((last = ANY (ARRAY['hint'::text, 'hit'::text, 'miss'::text, 'taken'::text])))
);

CREATE TABLE public.forecasts (
    cluster text NOT NULL,
    computed_at timestamp with time zone NOT NULL,
    document json NOT NULL
);

CREATE TABLE public.job_costs (
    uid uuid NOT NULL,
    day date NOT NULL,
    kind text NOT NULL,
    vm_seconds double precision NOT NULL,
    gpu_seconds double precision NOT NULL,
    usd double precision NOT NULL,
    CONSTRAINT ck_job_costs_amounts CHECK (((vm_seconds >= (0)::double precision) AND (gpu_seconds >= (0)::double precision) AND (usd >= (0)::double precision))),
    CONSTRAINT ck_job_costs_kind CHECK ((kind = ANY (ARRAY['boot'::text, 'hedge'::text, 'idle'::text, 'lost'::text, 'preempted'::text, 'useful'::text])))
);

CREATE TABLE public.job_events (
    uid uuid NOT NULL,
    seq integer NOT NULL,
    at timestamp with time zone NOT NULL,
    event text NOT NULL,
    from_status text,
    to_status text NOT NULL,
    attempt integer NOT NULL,
    reason text NOT NULL,
    vm_name text,
    region text,
    data jsonb DEFAULT '{}'::jsonb NOT NULL,
    dedup_key text,
    CONSTRAINT ck_job_events_from_status CHECK ((from_status = ANY (ARRAY['ASSIGNED'::text, 'CANCELLED'::text, 'FAILED'::text, 'PREEMPTING'::text, 'PROVISIONING'::text, 'QUEUED'::text, 'RUNNING'::text, 'STARTING'::text, 'STOPPING'::text, 'SUCCEEDED'::text]))),
    CONSTRAINT ck_job_events_seq CHECK ((seq >= 1)),
    CONSTRAINT ck_job_events_to_status CHECK ((to_status = ANY (ARRAY['ASSIGNED'::text, 'CANCELLED'::text, 'FAILED'::text, 'PREEMPTING'::text, 'PROVISIONING'::text, 'QUEUED'::text, 'RUNNING'::text, 'STARTING'::text, 'STOPPING'::text, 'SUCCEEDED'::text])))
);

CREATE TABLE public.job_waits (
    uid uuid NOT NULL,
    kind text NOT NULL,
    region text NOT NULL,
    key text NOT NULL,
    reason text NOT NULL,
    first_at timestamp with time zone NOT NULL,
    last_at timestamp with time zone NOT NULL,
    count integer NOT NULL,
    CONSTRAINT ck_job_waits_count CHECK ((count >= 0))
);

CREATE TABLE public.jobs (
    uid uuid NOT NULL,
    tenant_id text NOT NULL,
    user_id text NOT NULL,
    job_id text NOT NULL,
    name text NOT NULL,
    cluster text NOT NULL,
    status text NOT NULL,
    priority integer NOT NULL,
    labels jsonb DEFAULT '{}'::jsonb NOT NULL,
    spec jsonb NOT NULL,
    content_hash text NOT NULL,
    version integer NOT NULL,
    attempt integer NOT NULL,
    lease_id text,
    vm_name text,
    vm_uid uuid,
    lease_region text,
    lease_zone text,
    slots jsonb,
    submitted_at timestamp with time zone NOT NULL,
    status_since timestamp with time zone NOT NULL,
    queued_since timestamp with time zone NOT NULL,
    deadline_at timestamp with time zone,
    started_at timestamp with time zone,
    ended_at timestamp with time zone,
    failures integer DEFAULT 0 NOT NULL,
    losses integer DEFAULT 0 NOT NULL,
    preemptions integer DEFAULT 0 NOT NULL,
    exit_code integer,
    reason text DEFAULT ''::text NOT NULL,
    stop_reason text,
    why text DEFAULT ''::text NOT NULL,
    progress_step double precision,
    progress_total double precision,
    checkpoint_step double precision,
    progress_at timestamp with time zone,
    last_seq integer DEFAULT 0 NOT NULL,
    past_cost_usd double precision DEFAULT 0 NOT NULL,
    history_pruned boolean DEFAULT false NOT NULL,
    tier smallint DEFAULT 1 NOT NULL,
    due_at timestamp with time zone DEFAULT now() NOT NULL,
    attained_gpu_s double precision DEFAULT 0 NOT NULL,
    group_id text,
    blocked uuid,
    gang uuid,
    rank integer DEFAULT 0 NOT NULL,
    gang_size integer DEFAULT 1 NOT NULL,
    holds integer DEFAULT 0 NOT NULL,
    gang_region text DEFAULT ''::text NOT NULL,
    offer jsonb,
    moved bigint,
    starts_by timestamp with time zone,
    saved_s double precision DEFAULT 0 NOT NULL,
    saved_share double precision DEFAULT 0 NOT NULL,
    retry_at timestamp with time zone,
    CONSTRAINT ck_jobs_blocked CHECK (((blocked IS NULL) OR (status = 'QUEUED'::text))),
    CONSTRAINT ck_jobs_counters CHECK (((version >= 1) AND (attempt >= 0) AND (last_seq >= 0) AND (failures >= 0) AND (losses >= 0) AND (preemptions >= 0))),
    CONSTRAINT ck_jobs_deadline CHECK (((status = ANY (ARRAY['CANCELLED'::text, 'FAILED'::text, 'SUCCEEDED'::text])) = (deadline_at IS NULL))),
    CONSTRAINT ck_jobs_ended CHECK (((status = ANY (ARRAY['CANCELLED'::text, 'FAILED'::text, 'SUCCEEDED'::text])) = (ended_at IS NOT NULL))),
    CONSTRAINT ck_jobs_gang CHECK (((rank >= 0) AND (rank < gang_size) AND (holds >= 0) AND ((gang IS NULL) = (gang_size = 1)))),
    CONSTRAINT ck_jobs_lease CHECK (((status = ANY (ARRAY['ASSIGNED'::text, 'PREEMPTING'::text, 'RUNNING'::text, 'STARTING'::text, 'STOPPING'::text])) = (lease_id IS NOT NULL))),
    CONSTRAINT ck_jobs_lease_attempt CHECK (((status <> ALL (ARRAY['ASSIGNED'::text, 'PREEMPTING'::text, 'RUNNING'::text, 'STARTING'::text, 'STOPPING'::text])) OR (attempt >= 1))),
    CONSTRAINT ck_jobs_lease_whole CHECK ((num_nonnulls(lease_id, vm_name, vm_uid, lease_region, lease_zone, slots) = ANY (ARRAY[0, 6]))),
    CONSTRAINT ck_jobs_retry CHECK (((retry_at IS NULL) OR (status = 'QUEUED'::text))),
    CONSTRAINT ck_jobs_started CHECK (((status <> 'RUNNING'::text) OR (started_at IS NOT NULL))),
    CONSTRAINT ck_jobs_status CHECK ((status = ANY (ARRAY['ASSIGNED'::text, 'CANCELLED'::text, 'FAILED'::text, 'PREEMPTING'::text, 'PROVISIONING'::text, 'QUEUED'::text, 'RUNNING'::text, 'STARTING'::text, 'STOPPING'::text, 'SUCCEEDED'::text]))),
    CONSTRAINT ck_jobs_stop_reason CHECK ((stop_reason = ANY (ARRAY['gang'::text, 'max_runtime'::text, 'user'::text]))),
    CONSTRAINT ck_jobs_stopping CHECK (((status <> 'STOPPING'::text) OR (stop_reason IS NOT NULL))),
    CONSTRAINT ck_jobs_waiting CHECK (((status = ANY (ARRAY['PROVISIONING'::text, 'QUEUED'::text])) OR (why = ''::text)))
);

CREATE TABLE public.leader (
    one boolean DEFAULT true NOT NULL,
    holder text NOT NULL,
    term bigint NOT NULL,
    expires_at timestamp with time zone NOT NULL,
    CONSTRAINT ck_leader_one CHECK (one),
    CONSTRAINT ck_leader_term CHECK ((term >= 1))
);

CREATE TABLE public.outbox (
    outbox_id bigint NOT NULL,
    topic text NOT NULL,
    body bytea NOT NULL,
    attributes jsonb DEFAULT '{}'::jsonb NOT NULL,
    ordering_key text DEFAULT ''::text NOT NULL,
    published_at timestamp with time zone
);

ALTER TABLE public.outbox ALTER COLUMN outbox_id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.outbox_outbox_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE public.region_status (
    cluster text NOT NULL,
    region text NOT NULL,
    target_size integer NOT NULL,
    why text NOT NULL,
    observed_at timestamp with time zone
);

CREATE TABLE public.tenants (
    tenant_id text NOT NULL,
    weight double precision DEFAULT 1 NOT NULL,
    priority_max integer DEFAULT 9999 NOT NULL,
    may_preempt boolean DEFAULT true NOT NULL,
    preemptible boolean DEFAULT true NOT NULL,
    quota jsonb DEFAULT '{}'::jsonb NOT NULL,
    version integer DEFAULT 1 NOT NULL,
    usage_gpu_s double precision DEFAULT 0 NOT NULL,
    usage_at timestamp with time zone,
    name text DEFAULT ''::text NOT NULL,
    moved bigint,
    deleted boolean DEFAULT false NOT NULL,
    consent jsonb DEFAULT '{}'::jsonb NOT NULL,
    CONSTRAINT ck_tenants_amounts CHECK (((priority_max >= 0) AND (version >= 1) AND (usage_gpu_s >= (0)::double precision))),
    CONSTRAINT ck_tenants_weight CHECK ((weight > (0)::double precision))
);

CREATE TABLE public.troubles (
    region text NOT NULL,
    zone text NOT NULL,
    machine_type text NOT NULL,
    spot boolean NOT NULL,
    kind text NOT NULL,
    since timestamp with time zone NOT NULL,
    last_seen timestamp with time zone NOT NULL,
    until timestamp with time zone NOT NULL,
    count integer NOT NULL,
    message text NOT NULL,
    CONSTRAINT ck_troubles_count CHECK ((count >= 1)),
    CONSTRAINT ck_troubles_kind CHECK ((kind = ANY (ARRAY['address_space'::text, 'missing'::text, 'other'::text, 'permission'::text, 'quota'::text, 'stockout'::text, 'unclaimed'::text, 'unready'::text, 'unsupported'::text])))
);

CREATE TABLE public.vms (
    uid uuid NOT NULL,
    name text NOT NULL,
    cluster text NOT NULL,
    region text NOT NULL,
    zone text DEFAULT ''::text NOT NULL,
    state text NOT NULL,
    version integer NOT NULL,
    request_id text NOT NULL,
    instance_id text DEFAULT ''::text NOT NULL,
    boot_nonce text DEFAULT ''::text NOT NULL,
    gpus integer NOT NULL,
    spot boolean NOT NULL,
    usd_per_hour double precision NOT NULL,
    leases jsonb DEFAULT '[]'::jsonb NOT NULL,
    requested_at timestamp with time zone NOT NULL,
    state_since timestamp with time zone NOT NULL,
    running_since timestamp with time zone,
    ready_at timestamp with time zone,
    idle_since timestamp with time zone,
    last_beat_at timestamp with time zone,
    gone_at timestamp with time zone,
    taken boolean DEFAULT false NOT NULL,
    reason text DEFAULT ''::text NOT NULL,
    readings jsonb DEFAULT '[]'::jsonb NOT NULL,
    refused boolean DEFAULT false NOT NULL,
    stopped_at timestamp with time zone,
    settled_until timestamp with time zone,
    settled boolean DEFAULT false NOT NULL,
    address text DEFAULT ''::text NOT NULL,
    health jsonb DEFAULT '{}'::jsonb NOT NULL,
    kept_until timestamp with time zone,
    moved bigint,
    together text DEFAULT ''::text NOT NULL,
    ends_at timestamp with time zone,
    caused_by uuid,
    idle_max_s double precision DEFAULT 0 NOT NULL,
    leaving_since timestamp with time zone,
    CONSTRAINT ck_vms_counters CHECK (((version >= 1) AND (gpus >= 0) AND (usd_per_hour >= (0)::double precision))),
    CONSTRAINT ck_vms_gone CHECK (((state = 'GONE'::text) = (gone_at IS NOT NULL))),
    CONSTRAINT ck_vms_leases CHECK (((state <> ALL (ARRAY['BOOTING'::text, 'REQUESTED'::text])) OR (leases = '[]'::jsonb))),
    CONSTRAINT ck_vms_state CHECK ((state = ANY (ARRAY['BOOTING'::text, 'DELETING'::text, 'DRAINING'::text, 'GONE'::text, 'READY'::text, 'REQUESTED'::text])))
);

CREATE TABLE public.waits (
    hold uuid NOT NULL,
    needs text NOT NULL,
    job uuid,
    user_id text,
    group_id text,
    good_only boolean NOT NULL,
    over boolean DEFAULT false NOT NULL,
    bad text,
    ready boolean DEFAULT false NOT NULL,
    CONSTRAINT ck_waits_bad CHECK ((bad = ANY (ARRAY['CANCELLED'::text, 'FAILED'::text, 'SUCCEEDED'::text]))),
    CONSTRAINT ck_waits_one_thing CHECK ((num_nonnulls(job, group_id) = 1)),
    CONSTRAINT ck_waits_whose_group CHECK (((group_id IS NULL) = (user_id IS NULL)))
);

INSERT INTO public.alembic_version (version_num) VALUES
	('0023');

INSERT INTO public.alerts (alert_id, kind, subject, severity, message, raised_at, last_seen_at, cleared_at, count) OVERRIDING SYSTEM VALUE VALUES
	(2, 'stockout', 'us-east1', 'warning', 'no capacity in us-east1', '2026-01-01 00:00:40+00', '2026-01-01 00:00:40+00', NULL, 1),
	(1, 'budget', 'vision', 'warning', 'tenant vision has spent 80 % of its budget', '2026-01-01 00:00:41+00', '2026-01-01 00:00:41+00', '2026-01-01 00:01:20+00', 1);

INSERT INTO public.attempts (uid, attempt, lease_id, vm_uid, vm_name, region, zone, slots, usd_per_hour, assigned_at, started_at, ended_at, outcome, exit_code, checkpoint_at) VALUES
	('019b76da-a800-7a17-a54f-d23ca09f76b5', 1, '0fd630f1f29d0da9', '019b76da-a800-76ca-b4eb-252b0f21ddb6', 'zen-1xl4-us-central1-aaaa', 'us-central1', 'us-central1-a', '[0]', 2, '2026-01-01 00:01:30+00', NULL, NULL, '', NULL, NULL),
	('019b76da-a800-7181-a54c-66175d9dc9f8', 1, 'dbc496cb8e81973e', '019b76da-a800-793b-9963-368595e60af5', 'zen-1xl4-us-central1-bbbb', 'us-central1', 'us-central1-a', '[0]', 2, '2026-01-01 00:01:30+00', '2026-01-01 00:01:40+00', NULL, '', NULL, '2026-01-01 00:02:10+00'),
	('019b76da-a800-74ef-b43b-6a0b8f6d0558', 1, '2e44158bae97ba94', '019b76da-a800-7221-9ad3-2c904a23d596', 'zen-1xl4-us-west1-cccc', 'us-central1', 'us-central1-a', '[0]', 2, '2026-01-01 00:01:30+00', '2026-01-01 00:01:31+00', NULL, '', NULL, NULL),
	('019b76da-a800-78c3-8404-bc0db64ce422', 1, '0f4205b4907a70c3', '019b76da-a800-71a6-a48e-9cda94e3bf91', 'zen-1xl4-us-west1-dddd', 'us-central1', 'us-central1-a', '[0]', 2, '2026-01-01 00:01:30+00', '2026-01-01 00:01:31+00', NULL, '', NULL, NULL),
	('019b76da-a800-7506-a579-d8747731af10', 1, '7403e430ec66a787', '019b76da-a800-79e7-9fc5-414934b9b5df', 'zen-1xl4-us-west1-eeee', 'us-central1', 'us-central1-a', '[0]', 2, '2026-01-01 00:01:30+00', NULL, NULL, '', NULL, NULL),
	('019b76da-a800-73e7-a4c3-5bab14f4733f', 1, '867347214cdd2055', '019b76da-a800-75c9-8fe6-389d4cbd87ad', 'zen-1xl4-us-east1-ffff', 'us-central1', 'us-central1-a', '[0]', 2, '2026-01-01 00:01:10+00', '2026-01-01 00:01:11+00', '2026-01-01 01:00:00+00', 'vm_lost', NULL, NULL),
	('019b76da-a800-73e7-a4c3-5bab14f4733f', 2, '12bd4acefaecbd38', '019b76da-a800-77eb-95fb-8173e00902c7', 'zen-1xl4-us-east1-gggg', 'us-central1', 'us-central1-a', '[0]', 2, '2026-01-01 01:01:40+00', '2026-01-01 01:01:50+00', '2026-01-01 02:00:00+00', 'exited_ok', 0, NULL),
	('019b76da-a800-7eee-9afd-1b1a7d2caf82', 1, 'f646e1f40a097c97', '019b76da-a800-71e3-9ac2-863a830e07bc', 'zen-1xl4-us-east1-hhhh', 'us-central1', 'us-central1-a', '[0]', 2, '2026-01-01 00:01:10+00', '2026-01-01 00:01:11+00', '2026-01-01 00:01:30+00', 'exited_error', 3, NULL);

INSERT INTO public.cloud_requests (request_id, kind, cluster, region, names, reason, created_at, settled_at, outcome, together, run_s) VALUES
	('10a3d6b2-aa05-411a-b271-5945795e8229', 'create', '1xl4', 'us-central1', '["zen-1xl4-us-central1-jjjj"]', '1 job waits', '2026-01-01 00:00:00+00', NULL, '', '', 0),
	('delete-1', 'delete', '1xl4', 'us-east1', '["zen-1xl4-us-east1-ffff"]', 'silent for 90 s', '2026-01-01 01:00:01+00', '2026-01-01 01:00:02+00', 'done', '', 0);

INSERT INTO public.config_files (host, path, digest, at) VALUES
	('scheduler-0', '/etc/zen/zen.yaml', 'd2', '2026-11-18 03:23:10.173139+00');

INSERT INTO public.config_versions (version, at, author, source, digest, document, diff) VALUES
	(1, '2025-12-31 23:59:00+00', 'operator', 'zen.yaml', 'd1', '{"timers":{"heartbeat_s":10},"clusters":{"1xl4":{"vm_max":8}}}', '[]'),
	(2, '2026-01-01 00:10:00+00', 'operator', 'zen.yaml', 'd2', '{"timers":{"heartbeat_s":10},"clusters":{"1xl4":{"vm_max":12}}}', '["clusters.1xl4.vm_max: 8 → 12"]');

INSERT INTO public.cost_daily (day, tenant_id, user_id, cluster, region, spot, kind, vm_seconds, gpu_seconds, usd) VALUES
	('2026-01-01', '', '', '1xl4', 'us-central1', false, 'idle', 169220, 169220, 94.01111111111112),
	('2026-01-01', 'default', '0', '1xl4', 'us-central1', false, 'useful', 20, 20, 0.011111111111111112),
	('2026-01-01', 'vision', '0', '1xl4', 'us-central1', false, 'lost', 3530, 3530, 1.961111111111111),
	('2026-01-01', 'vision', '0', '1xl4', 'us-central1', false, 'useful', 3500, 3500, 1.9444444444444444),
	('2026-01-02', '', '', '1xl4', 'us-central1', false, 'idle', 172800, 172800, 96);

INSERT INTO public.dead_letters (message_id, source, body, attributes, reason, at, ordering_key, replayed_at) VALUES
	('m-1', 'jobs', '\x7b6e6f74206a736f6e', '{"k": "v"}', 'not JSON', '2026-01-01 00:00:03+00', '', NULL),
	('m-2', 'jobs', '\x7b7d', '{}', 'command: missing', '2026-01-01 00:00:04+00', 'key', '2026-01-01 00:01:30+00');

INSERT INTO public.experience (region, zone, machine_type, spot, updated_at, hits, misses, last, last_at, deliveries, delivery_log_mean, delivery_log_var, boots, boot_log_mean, boot_log_var, room, preempted, vm_hours, short_kept, short_at) VALUES
	('us-central1', 'us-central1-a', 'g2-standard-12', true, '2026-01-01 00:00:50+00', 3, 1, 'taken', '2026-01-01 00:00:49+00', 2, 3.8, 0.2, 1, 4.4, 0.1, 8, 1, 12.5, '{2,5}', '{"2026-01-01 00:00:10+00","2026-01-01 00:00:20+00"}');

INSERT INTO public.forecasts (cluster, computed_at, document) VALUES
	('1xl4', '2026-01-01 00:01:40+00', '{"cluster":"1xl4","computed_at":"2026-01-01T00:01:40Z","jobs":{"019b76da-a800-752e-89a7-834df2a74de4":{"told":{"at":"2026-01-01T00:00:00Z","p50_at":"2026-01-01T00:01:00Z","p90_at":"2026-01-01T00:01:30.500000Z"},"based_on":"runs","run_p50_s":10.0,"run_p90_s":20.5,"run_based_on":"7 runs","first":{"at":"2026-01-01T00:00:00Z","p50_at":"2026-01-01T00:01:00Z","p90_at":"2026-01-01T00:01:30.500000Z"}}},"paces":[{"tenant_id":"vision","tier":1,"position":7,"p50_s":60.0,"p90_s":90.5}],"record":{"told":4,"p50_held":2,"p90_held":3,"p50_factor":1.5,"p90_factor":0.75}}');

INSERT INTO public.job_costs (uid, day, kind, vm_seconds, gpu_seconds, usd) VALUES
	('019b76da-a800-73e7-a4c3-5bab14f4733f', '2026-01-01', 'lost', 3530, 3530, 1.961111111111111),
	('019b76da-a800-73e7-a4c3-5bab14f4733f', '2026-01-01', 'useful', 3500, 3500, 1.9444444444444444),
	('019b76da-a800-7eee-9afd-1b1a7d2caf82', '2026-01-01', 'useful', 20, 20, 0.011111111111111112);

INSERT INTO public.job_events (uid, seq, at, event, from_status, to_status, attempt, reason, vm_name, region, data, dedup_key) VALUES
	('019b76da-a800-752e-89a7-834df2a74de4', 1, '2026-01-01 00:00:00+00', 'submitted', NULL, 'QUEUED', 0, 'submitted', NULL, NULL, '{}', NULL),
	('019b76da-a800-7651-8317-1ff4a6a3a450', 1, '2026-01-01 00:00:00+00', 'submitted', NULL, 'QUEUED', 0, 'submitted', NULL, NULL, '{}', NULL),
	('019b76da-a800-7128-a24b-e40ad23f0824', 1, '2026-01-01 00:00:00+00', 'submitted', NULL, 'QUEUED', 0, 'submitted', NULL, NULL, '{}', NULL),
	('019b76da-a800-7181-a54c-66175d9dc9f8', 1, '2026-01-01 00:00:00+00', 'submitted', NULL, 'QUEUED', 0, 'submitted', NULL, NULL, '{}', NULL),
	('019b76da-a800-70ed-a079-d3bde8e25d94', 1, '2026-01-01 00:00:00+00', 'submitted', NULL, 'QUEUED', 0, 'submitted', NULL, NULL, '{}', NULL),
	('019b76da-a800-736f-8580-28d6099950d8', 1, '2026-01-01 00:00:00+00', 'submitted', NULL, 'QUEUED', 0, 'submitted', NULL, NULL, '{}', NULL),
	('019b76da-a800-76f0-8478-82e36b0d549b', 1, '2026-01-01 00:00:00+00', 'submitted', NULL, 'QUEUED', 0, 'submitted', NULL, NULL, '{}', NULL),
	('019b76da-a800-73d9-a344-5bb31738f7d9', 1, '2026-01-01 00:00:00+00', 'submitted', NULL, 'QUEUED', 0, 'submitted', NULL, NULL, '{}', NULL),
	('019b76da-a800-73d9-a344-5bb31738f7d9', 2, '2026-01-01 00:00:20+00', 'admitted', 'QUEUED', 'PROVISIONING', 0, 'admitted', NULL, NULL, '{}', NULL),
	('019b76da-a800-7a17-a54f-d23ca09f76b5', 1, '2026-01-01 00:00:00+00', 'submitted', NULL, 'QUEUED', 0, 'submitted', NULL, NULL, '{}', NULL),
	('019b76da-a800-7a17-a54f-d23ca09f76b5', 2, '2026-01-01 00:01:30+00', 'admitted', 'QUEUED', 'PROVISIONING', 0, 'admitted', NULL, NULL, '{}', NULL),
	('019b76da-a800-7a17-a54f-d23ca09f76b5', 3, '2026-01-01 00:01:30+00', 'placed', 'PROVISIONING', 'ASSIGNED', 1, 'placed', 'zen-1xl4-us-central1-aaaa', 'us-central1', '{}', NULL),
	('019b76da-a800-7181-a54c-66175d9dc9f8', 2, '2026-01-01 00:01:30+00', 'admitted', 'QUEUED', 'PROVISIONING', 0, 'admitted', NULL, NULL, '{}', NULL),
	('019b76da-a800-7181-a54c-66175d9dc9f8', 3, '2026-01-01 00:01:30+00', 'placed', 'PROVISIONING', 'ASSIGNED', 1, 'placed', 'zen-1xl4-us-central1-bbbb', 'us-central1', '{}', NULL),
	('019b76da-a800-7181-a54c-66175d9dc9f8', 4, '2026-01-01 00:01:35+00', 'claimed', 'ASSIGNED', 'STARTING', 1, 'claimed', 'zen-1xl4-us-central1-bbbb', 'us-central1', '{}', NULL),
	('019b76da-a800-7181-a54c-66175d9dc9f8', 5, '2026-01-01 00:01:40+00', 'started', 'STARTING', 'RUNNING', 1, 'started', 'zen-1xl4-us-central1-bbbb', 'us-central1', '{}', NULL),
	('019b76da-a800-7181-a54c-66175d9dc9f8', 6, '2026-01-01 00:02:11+00', 'note', 'RUNNING', 'RUNNING', 1, 'a second checkpoint', 'zen-1xl4-us-central1-bbbb', 'us-central1', '{"step": 20}', 'note-1'),
	('019b76da-a800-74ef-b43b-6a0b8f6d0558', 1, '2026-01-01 00:00:00+00', 'submitted', NULL, 'QUEUED', 0, 'submitted', NULL, NULL, '{}', NULL),
	('019b76da-a800-74ef-b43b-6a0b8f6d0558', 2, '2026-01-01 00:01:30+00', 'admitted', 'QUEUED', 'PROVISIONING', 0, 'admitted', NULL, NULL, '{}', NULL),
	('019b76da-a800-74ef-b43b-6a0b8f6d0558', 3, '2026-01-01 00:01:30+00', 'placed', 'PROVISIONING', 'ASSIGNED', 1, 'placed', 'zen-1xl4-us-west1-cccc', 'us-central1', '{}', NULL),
	('019b76da-a800-74ef-b43b-6a0b8f6d0558', 4, '2026-01-01 00:01:31+00', 'started', 'ASSIGNED', 'RUNNING', 1, 'started', 'zen-1xl4-us-west1-cccc', 'us-central1', '{}', NULL),
	('019b76da-a800-74ef-b43b-6a0b8f6d0558', 5, '2026-01-01 00:01:39+00', 'stop_asked', 'RUNNING', 'STOPPING', 1, 'stop_asked', 'zen-1xl4-us-west1-cccc', 'us-central1', '{}', NULL),
	('019b76da-a800-78c3-8404-bc0db64ce422', 1, '2026-01-01 00:00:00+00', 'submitted', NULL, 'QUEUED', 0, 'submitted', NULL, NULL, '{}', NULL),
	('019b76da-a800-78c3-8404-bc0db64ce422', 2, '2026-01-01 00:01:30+00', 'admitted', 'QUEUED', 'PROVISIONING', 0, 'admitted', NULL, NULL, '{}', NULL),
	('019b76da-a800-78c3-8404-bc0db64ce422', 3, '2026-01-01 00:01:30+00', 'placed', 'PROVISIONING', 'ASSIGNED', 1, 'placed', 'zen-1xl4-us-west1-dddd', 'us-central1', '{}', NULL),
	('019b76da-a800-78c3-8404-bc0db64ce422', 4, '2026-01-01 00:01:31+00', 'started', 'ASSIGNED', 'RUNNING', 1, 'started', 'zen-1xl4-us-west1-dddd', 'us-central1', '{}', NULL),
	('019b76da-a800-78c3-8404-bc0db64ce422', 5, '2026-01-01 00:03:20+00', 'yield_asked', 'RUNNING', 'PREEMPTING', 1, 'yield_asked', 'zen-1xl4-us-west1-dddd', 'us-central1', '{}', NULL),
	('019b76da-a800-7506-a579-d8747731af10', 1, '2026-01-01 00:00:00+00', 'submitted', NULL, 'QUEUED', 0, 'submitted', NULL, NULL, '{}', NULL),
	('019b76da-a800-7506-a579-d8747731af10', 2, '2026-01-01 00:01:30+00', 'admitted', 'QUEUED', 'PROVISIONING', 0, 'admitted', NULL, NULL, '{}', NULL),
	('019b76da-a800-7506-a579-d8747731af10', 3, '2026-01-01 00:01:30+00', 'placed', 'PROVISIONING', 'ASSIGNED', 1, 'placed', 'zen-1xl4-us-west1-eeee', 'us-central1', '{}', NULL),
	('019b76da-a800-7506-a579-d8747731af10', 4, '2026-01-01 00:01:32+00', 'claimed', 'ASSIGNED', 'STARTING', 1, 'claimed', 'zen-1xl4-us-west1-eeee', 'us-central1', '{}', NULL),
	('019b76da-a800-73e7-a4c3-5bab14f4733f', 1, '2026-01-01 00:00:00+00', 'submitted', NULL, 'QUEUED', 0, 'submitted', NULL, NULL, '{}', NULL),
	('019b76da-a800-73e7-a4c3-5bab14f4733f', 2, '2026-01-01 00:01:10+00', 'admitted', 'QUEUED', 'PROVISIONING', 0, 'admitted', NULL, NULL, '{}', NULL),
	('019b76da-a800-73e7-a4c3-5bab14f4733f', 3, '2026-01-01 00:01:10+00', 'placed', 'PROVISIONING', 'ASSIGNED', 1, 'placed', 'zen-1xl4-us-east1-ffff', 'us-central1', '{}', NULL),
	('019b76da-a800-73e7-a4c3-5bab14f4733f', 4, '2026-01-01 00:01:11+00', 'started', 'ASSIGNED', 'RUNNING', 1, 'started', 'zen-1xl4-us-east1-ffff', 'us-central1', '{}', NULL),
	('019b76da-a800-73e7-a4c3-5bab14f4733f', 5, '2026-01-01 01:00:00+00', 'vm_lost', 'RUNNING', 'QUEUED', 1, 'vm_lost', 'zen-1xl4-us-east1-ffff', 'us-central1', '{}', NULL),
	('019b76da-a800-73e7-a4c3-5bab14f4733f', 6, '2026-01-01 01:01:40+00', 'admitted', 'QUEUED', 'PROVISIONING', 1, 'admitted', NULL, NULL, '{}', NULL),
	('019b76da-a800-73e7-a4c3-5bab14f4733f', 7, '2026-01-01 01:01:40+00', 'placed', 'PROVISIONING', 'ASSIGNED', 2, 'placed', 'zen-1xl4-us-east1-gggg', 'us-central1', '{}', NULL),
	('019b76da-a800-73e7-a4c3-5bab14f4733f', 8, '2026-01-01 01:01:50+00', 'started', 'ASSIGNED', 'RUNNING', 2, 'started', 'zen-1xl4-us-east1-gggg', 'us-central1', '{}', NULL),
	('019b76da-a800-73e7-a4c3-5bab14f4733f', 9, '2026-01-01 02:00:00+00', 'exited_ok', 'RUNNING', 'SUCCEEDED', 2, 'exited_ok', 'zen-1xl4-us-east1-gggg', 'us-central1', '{"exit_code": 0}', NULL),
	('019b76da-a800-7eee-9afd-1b1a7d2caf82', 1, '2026-01-01 00:00:00+00', 'submitted', NULL, 'QUEUED', 0, 'submitted', NULL, NULL, '{}', NULL),
	('019b76da-a800-7eee-9afd-1b1a7d2caf82', 2, '2026-01-01 00:01:10+00', 'admitted', 'QUEUED', 'PROVISIONING', 0, 'admitted', NULL, NULL, '{}', NULL),
	('019b76da-a800-7eee-9afd-1b1a7d2caf82', 3, '2026-01-01 00:01:10+00', 'placed', 'PROVISIONING', 'ASSIGNED', 1, 'placed', 'zen-1xl4-us-east1-hhhh', 'us-central1', '{}', NULL),
	('019b76da-a800-7eee-9afd-1b1a7d2caf82', 4, '2026-01-01 00:01:11+00', 'started', 'ASSIGNED', 'RUNNING', 1, 'started', 'zen-1xl4-us-east1-hhhh', 'us-central1', '{}', NULL),
	('019b76da-a800-7eee-9afd-1b1a7d2caf82', 5, '2026-01-01 00:01:30+00', 'exited_error', 'RUNNING', 'QUEUED', 1, 'attempt 1 failed: exited_error; attempt 2 of 2 in 10 s', 'zen-1xl4-us-east1-hhhh', 'us-central1', '{}', NULL),
	('019b76da-a800-7ab1-b0ee-baa713deef86', 1, '2026-01-01 00:00:00+00', 'submitted', NULL, 'QUEUED', 0, 'submitted', NULL, NULL, '{}', NULL),
	('019b76da-a800-7ab1-b0ee-baa713deef86', 2, '2026-01-01 00:00:05+00', 'stop_asked', 'QUEUED', 'CANCELLED', 0, 'stop_asked', NULL, NULL, '{}', NULL),
	('019b76da-a800-78ed-b280-84d792b1d3f2', 1, '2026-01-01 00:00:00+00', 'submitted', NULL, 'QUEUED', 0, 'submitted', NULL, NULL, '{}', NULL),
	('019b76da-a800-78ed-b280-84d792b1d3f2', 2, '2026-01-01 00:00:05+00', 'queue_timeout', 'QUEUED', 'FAILED', 0, 'queue_timeout', NULL, NULL, '{}', NULL),
	('019b76da-a800-7e01-9414-7073d17f9aca', 1, '2026-01-01 00:00:00+00', 'submitted', NULL, 'QUEUED', 0, 'submitted', NULL, NULL, '{}', NULL);
INSERT INTO public.job_events (uid, seq, at, event, from_status, to_status, attempt, reason, vm_name, region, data, dedup_key) VALUES
	('019b76da-a800-7571-9669-529eb1fee08f', 1, '2026-01-01 00:00:00+00', 'submitted', NULL, 'QUEUED', 0, 'submitted', NULL, NULL, '{}', NULL),
	('019b76da-a800-7ae6-9c85-60dcd269a9a5', 1, '2026-01-01 00:00:00+00', 'submitted', NULL, 'QUEUED', 0, 'submitted', NULL, NULL, '{}', NULL),
	('019b76da-a800-7ae6-9c85-60dcd269a9a5', 2, '2026-01-01 00:00:10+00', 'admitted', 'QUEUED', 'PROVISIONING', 0, 'admitted', NULL, NULL, '{}', NULL);

INSERT INTO public.job_waits (uid, kind, region, key, reason, first_at, last_at, count) VALUES
	('019b76da-a800-752e-89a7-834df2a74de4', 'pending_reason', '', 'no VM is free', 'no VM is free', '2026-01-01 00:00:11+00', '2026-01-01 00:00:11+00', 1),
	('019b76da-a800-752e-89a7-834df2a74de4', 'refusal', 'us-east1', 'stockout #', 'stockout 1', '2026-01-01 00:00:10+00', '2026-01-01 00:00:10+00', 1);

INSERT INTO public.jobs (uid, tenant_id, user_id, job_id, name, cluster, status, priority, labels, spec, content_hash, version, attempt, lease_id, vm_name, vm_uid, lease_region, lease_zone, slots, submitted_at, status_since, queued_since, deadline_at, started_at, ended_at, failures, losses, preemptions, exit_code, reason, stop_reason, why, progress_step, progress_total, checkpoint_step, progress_at, last_seq, past_cost_usd, history_pruned, tier, due_at, attained_gpu_s, group_id, blocked, gang, rank, gang_size, holds, gang_region, offer, moved, starts_by, saved_s, saved_share, retry_at) VALUES
	('019b76da-a800-752e-89a7-834df2a74de4', 'vision', 'ana', 'waits-1', 'train', '1xl4', 'QUEUED', 900, '{"team": "vision"}', '{"name": "train", "spot": null, "after": [], "array": null, "group": null, "image": null, "shell": false, "job_id": "waits-1", "labels": {"team": "vision"}, "cluster": null, "command": ["true"], "regions": [], "retries": 0, "user_id": "ana", "deadline": "2026-01-01T02:00:00Z", "gpu_type": null, "priority": 900, "replicas": 1, "workflow": "", "cpu_cores": 0, "gpu_count": 1, "gpu_types": ["h100", "l4"], "memory_mb": 0, "same_zone": false, "tenant_id": "vision", "keep_alive": false, "environment": {"EPOCHS": "3"}, "working_dir": "", "allow_larger": null, "replicas_min": null, "stop_grace_s": 60.0, "gpu_memory_mb": 0, "max_runtime_s": 604800.0, "reschedulable": true, "resize_signal": "USR1", "workflow_args": {}, "regions_denied": ["europe-west4"], "keep_entrypoint": false, "queue_timeout_s": 1000000000.0, "replace_members": false, "max_usd_per_hour": null, "agreed_usd_per_hour": null}', '09c35546c00c0242fb400dce92a0ebb5140e576db6a8149a51b598e41a2573a5', 1, 0, NULL, NULL, NULL, NULL, NULL, NULL, '2026-01-01 00:00:00+00', '2026-01-01 00:00:00+00', '2026-01-01 00:00:00+00', '2057-09-09 01:46:40+00', NULL, NULL, 0, 0, 0, NULL, 'submitted', NULL, 'no VM is free; 1 VM is booting in us-central1', NULL, NULL, NULL, NULL, 1, 0, false, 1, '2026-01-01 03:00:00+00', 0, NULL, NULL, NULL, 0, 1, 0, '', NULL, NULL, NULL, 0, 0, NULL),
	('019b76da-a800-7651-8317-1ff4a6a3a450', 'default', 'ana', 'first', '', '1xl4', 'QUEUED', 500, '{}', '{"name": "", "spot": null, "after": [], "array": null, "group": null, "image": null, "shell": false, "job_id": "first", "labels": {}, "cluster": null, "command": ["true"], "regions": [], "retries": 0, "user_id": "ana", "deadline": null, "gpu_type": null, "priority": 500, "replicas": 1, "workflow": "", "cpu_cores": 0, "gpu_count": 1, "gpu_types": [], "memory_mb": 0, "same_zone": false, "tenant_id": "default", "keep_alive": false, "environment": {}, "working_dir": "", "allow_larger": null, "replicas_min": null, "stop_grace_s": 60.0, "gpu_memory_mb": 0, "max_runtime_s": 604800.0, "reschedulable": true, "resize_signal": "USR1", "workflow_args": {}, "regions_denied": [], "keep_entrypoint": false, "queue_timeout_s": 1000000000.0, "replace_members": false, "max_usd_per_hour": null, "agreed_usd_per_hour": null}', '2934b142547fc7ae81e8d9c4a477f239c6436577d238dc149e70968986a11af3', 1, 0, NULL, NULL, NULL, NULL, NULL, NULL, '2026-01-01 00:00:00+00', '2026-01-01 00:00:00+00', '2026-01-01 00:00:00+00', '2057-09-09 01:46:40+00', NULL, NULL, 0, 0, 0, NULL, 'submitted', NULL, '', NULL, NULL, NULL, NULL, 1, 0, false, 1, '2026-01-01 05:00:00+00', 0, NULL, NULL, NULL, 0, 1, 0, '', NULL, NULL, NULL, 0, 0, NULL),
	('019b76da-a800-7128-a24b-e40ad23f0824', 'default', 'ana', 'second', '', '1xl4', 'QUEUED', 500, '{}', '{"name": "", "spot": null, "after": ["first:ok"], "array": null, "group": null, "image": null, "shell": false, "job_id": "second", "labels": {}, "cluster": null, "command": ["true"], "regions": [], "retries": 0, "user_id": "ana", "deadline": null, "gpu_type": null, "priority": 500, "replicas": 1, "workflow": "", "cpu_cores": 0, "gpu_count": 1, "gpu_types": [], "memory_mb": 0, "same_zone": false, "tenant_id": "default", "keep_alive": false, "environment": {}, "working_dir": "", "allow_larger": null, "replicas_min": null, "stop_grace_s": 60.0, "gpu_memory_mb": 0, "max_runtime_s": 604800.0, "reschedulable": true, "resize_signal": "USR1", "workflow_args": {}, "regions_denied": [], "keep_entrypoint": false, "queue_timeout_s": 2592000.0, "replace_members": false, "max_usd_per_hour": null, "agreed_usd_per_hour": null}', 'ec58db645a9ac3851bc1fcc4ad8dc09737f705da4563314cba1bcf275c2a4e6e', 1, 0, NULL, NULL, NULL, NULL, NULL, NULL, '2026-01-01 00:00:00+00', '2026-01-01 00:00:00+00', '2026-01-01 00:00:00+00', '2057-09-09 01:46:40+00', NULL, NULL, 0, 0, 0, NULL, 'submitted', NULL, '', NULL, NULL, NULL, NULL, 1, 0, false, 1, '2026-01-01 05:00:00+00', 0, NULL, '019b76da-a800-7128-a24b-e40ad23f0824', NULL, 0, 1, 0, '', NULL, NULL, NULL, 0, 0, NULL),
	('019b76da-a800-70ed-a079-d3bde8e25d94', 'default', 'ana', 'sweep-1', '', '1xl4', 'QUEUED', 500, '{}', '{"name": "", "spot": null, "after": [], "array": "0-3", "group": "sweep", "image": null, "shell": false, "job_id": "sweep-1", "labels": {}, "cluster": null, "command": ["true"], "regions": [], "retries": 0, "user_id": "ana", "deadline": null, "gpu_type": null, "priority": 500, "replicas": 1, "workflow": "", "cpu_cores": 0, "gpu_count": 1, "gpu_types": [], "memory_mb": 0, "same_zone": false, "tenant_id": "default", "keep_alive": false, "environment": {"ARRAY_INDEX": "1"}, "working_dir": "", "allow_larger": null, "replicas_min": null, "stop_grace_s": 60.0, "gpu_memory_mb": 0, "max_runtime_s": 604800.0, "reschedulable": true, "resize_signal": "USR1", "workflow_args": {}, "regions_denied": [], "keep_entrypoint": false, "queue_timeout_s": 1000000000.0, "replace_members": false, "max_usd_per_hour": null, "agreed_usd_per_hour": null}', '673c06b6c3ebaea0b075e8a88562eea234eb00eff41b957dd36d453d44c28934', 1, 0, NULL, NULL, NULL, NULL, NULL, NULL, '2026-01-01 00:00:00+00', '2026-01-01 00:00:00+00', '2026-01-01 00:00:00+00', '2057-09-09 01:46:40+00', NULL, NULL, 0, 0, 0, NULL, 'submitted', NULL, '', NULL, NULL, NULL, NULL, 1, 0, false, 1, '2026-01-01 05:00:00+00', 0, 'sweep', NULL, NULL, 0, 1, 0, '', NULL, NULL, NULL, 0, 0, NULL),
	('019b76da-a800-736f-8580-28d6099950d8', 'default', 'ana', 'sweep-2', '', '1xl4', 'QUEUED', 500, '{}', '{"name": "", "spot": null, "after": [], "array": "0-3", "group": "sweep", "image": null, "shell": false, "job_id": "sweep-2", "labels": {}, "cluster": null, "command": ["true"], "regions": [], "retries": 0, "user_id": "ana", "deadline": null, "gpu_type": null, "priority": 500, "replicas": 1, "workflow": "", "cpu_cores": 0, "gpu_count": 1, "gpu_types": [], "memory_mb": 0, "same_zone": false, "tenant_id": "default", "keep_alive": false, "environment": {"ARRAY_INDEX": "2"}, "working_dir": "", "allow_larger": null, "replicas_min": null, "stop_grace_s": 60.0, "gpu_memory_mb": 0, "max_runtime_s": 604800.0, "reschedulable": true, "resize_signal": "USR1", "workflow_args": {}, "regions_denied": [], "keep_entrypoint": false, "queue_timeout_s": 1000000000.0, "replace_members": false, "max_usd_per_hour": null, "agreed_usd_per_hour": null}', '43f61e7b6b081061b081bff74209fa55e4e8e8fcb58266053d57002cd7c7fc72', 1, 0, NULL, NULL, NULL, NULL, NULL, NULL, '2026-01-01 00:00:00+00', '2026-01-01 00:00:00+00', '2026-01-01 00:00:00+00', '2057-09-09 01:46:40+00', NULL, NULL, 0, 0, 0, NULL, 'submitted', NULL, '', NULL, NULL, NULL, NULL, 1, 0, false, 1, '2026-01-01 05:00:00+00', 0, 'sweep', NULL, NULL, 0, 1, 0, '', NULL, NULL, NULL, 0, 0, NULL),
	('019b76da-a800-76f0-8478-82e36b0d549b', 'default', 'ana', 'sweep-3', '', '1xl4', 'QUEUED', 500, '{}', '{"name": "", "spot": null, "after": [], "array": "0-3", "group": "sweep", "image": null, "shell": false, "job_id": "sweep-3", "labels": {}, "cluster": null, "command": ["true"], "regions": [], "retries": 0, "user_id": "ana", "deadline": null, "gpu_type": null, "priority": 500, "replicas": 1, "workflow": "", "cpu_cores": 0, "gpu_count": 1, "gpu_types": [], "memory_mb": 0, "same_zone": false, "tenant_id": "default", "keep_alive": false, "environment": {"ARRAY_INDEX": "3"}, "working_dir": "", "allow_larger": null, "replicas_min": null, "stop_grace_s": 60.0, "gpu_memory_mb": 0, "max_runtime_s": 604800.0, "reschedulable": true, "resize_signal": "USR1", "workflow_args": {}, "regions_denied": [], "keep_entrypoint": false, "queue_timeout_s": 1000000000.0, "replace_members": false, "max_usd_per_hour": null, "agreed_usd_per_hour": null}', '61ea57611b272a041dbfb9d2af85978346035e28dfde06d5636b8da185a30dfb', 1, 0, NULL, NULL, NULL, NULL, NULL, NULL, '2026-01-01 00:00:00+00', '2026-01-01 00:00:00+00', '2026-01-01 00:00:00+00', '2057-09-09 01:46:40+00', NULL, NULL, 0, 0, 0, NULL, 'submitted', NULL, '', NULL, NULL, NULL, NULL, 1, 0, false, 1, '2026-01-01 05:00:00+00', 0, 'sweep', NULL, NULL, 0, 1, 0, '', NULL, NULL, NULL, 0, 0, NULL),
	('019b76da-a800-7a17-a54f-d23ca09f76b5', 'default', 'ben', 'assigned', '', '1xl4', 'ASSIGNED', 500, '{}', '{"name": "", "spot": null, "after": [], "array": null, "group": null, "image": null, "shell": false, "job_id": "assigned", "labels": {}, "cluster": null, "command": ["true"], "regions": [], "retries": 0, "user_id": "ben", "deadline": null, "gpu_type": null, "priority": 500, "replicas": 1, "workflow": "", "cpu_cores": 0, "gpu_count": 1, "gpu_types": [], "memory_mb": 0, "same_zone": false, "tenant_id": "default", "keep_alive": false, "environment": {}, "working_dir": "", "allow_larger": null, "replicas_min": null, "stop_grace_s": 60.0, "gpu_memory_mb": 0, "max_runtime_s": 604800.0, "reschedulable": true, "resize_signal": "USR1", "workflow_args": {}, "regions_denied": [], "keep_entrypoint": false, "queue_timeout_s": 1000000000.0, "replace_members": false, "max_usd_per_hour": null, "agreed_usd_per_hour": null}', '318816cc952fa27145776049a5ab795fbb369038ce2cb1f705b0b30049448415', 3, 1, '0fd630f1f29d0da9', 'zen-1xl4-us-central1-aaaa', '019b76da-a800-76ca-b4eb-252b0f21ddb6', 'us-central1', 'us-central1-a', '[0]', '2026-01-01 00:00:00+00', '2026-01-01 00:01:30+00', '2026-01-01 00:00:00+00', '2026-01-01 00:02:30+00', NULL, NULL, 0, 0, 0, NULL, 'placed', NULL, '', NULL, NULL, NULL, NULL, 3, 0, false, 1, '2026-01-01 05:00:00+00', 0, NULL, NULL, NULL, 0, 1, 0, '', NULL, 971, NULL, 0, 0, NULL),
	('019b76da-a800-7181-a54c-66175d9dc9f8', 'default', 'ana', 'sweep-0', '', '1xl4', 'RUNNING', 500, '{}', '{"name": "", "spot": null, "after": [], "array": "0-3", "group": "sweep", "image": null, "shell": false, "job_id": "sweep-0", "labels": {}, "cluster": null, "command": ["true"], "regions": [], "retries": 0, "user_id": "ana", "deadline": null, "gpu_type": null, "priority": 500, "replicas": 1, "workflow": "", "cpu_cores": 0, "gpu_count": 1, "gpu_types": [], "memory_mb": 0, "same_zone": false, "tenant_id": "default", "keep_alive": false, "environment": {"ARRAY_INDEX": "0"}, "working_dir": "", "allow_larger": null, "replicas_min": null, "stop_grace_s": 60.0, "gpu_memory_mb": 0, "max_runtime_s": 604800.0, "reschedulable": true, "resize_signal": "USR1", "workflow_args": {}, "regions_denied": [], "keep_entrypoint": false, "queue_timeout_s": 1000000000.0, "replace_members": false, "max_usd_per_hour": null, "agreed_usd_per_hour": null}', '1a5962e5ad09556d7f6d76c67600a0508c799d76aa58cc59d01b234e0f6d6d7f', 5, 1, 'dbc496cb8e81973e', 'zen-1xl4-us-central1-bbbb', '019b76da-a800-793b-9963-368595e60af5', 'us-central1', 'us-central1-a', '[0]', '2026-01-01 00:00:00+00', '2026-01-01 00:01:40+00', '2026-01-01 00:00:00+00', '2026-01-08 00:01:40+00', '2026-01-01 00:01:40+00', NULL, 0, 0, 0, NULL, 'started', NULL, '', 30, 100, 20, '2026-01-01 00:02:10+00', 6, 0, false, 1, '2026-01-01 05:00:00+00', 0, 'sweep', NULL, NULL, 0, 1, 0, '', NULL, 976, NULL, 0, 0, NULL),
	('019b76da-a800-78c3-8404-bc0db64ce422', 'default', '0', 'preempting', '', '1xl4', 'PREEMPTING', 100, '{}', '{"name": "", "spot": null, "after": [], "array": null, "group": null, "image": null, "shell": false, "job_id": "preempting", "labels": {}, "cluster": null, "command": ["true"], "regions": [], "retries": 0, "user_id": "0", "deadline": null, "gpu_type": null, "priority": 100, "replicas": 1, "workflow": "", "cpu_cores": 0, "gpu_count": 1, "gpu_types": [], "memory_mb": 0, "same_zone": false, "tenant_id": "default", "keep_alive": false, "environment": {}, "working_dir": "", "allow_larger": null, "replicas_min": null, "stop_grace_s": 60.0, "gpu_memory_mb": 0, "max_runtime_s": 604800.0, "reschedulable": true, "resize_signal": "USR1", "workflow_args": {}, "regions_denied": [], "keep_entrypoint": false, "queue_timeout_s": 1000000000.0, "replace_members": false, "max_usd_per_hour": null, "agreed_usd_per_hour": null}', '57f6b133a5adc36f34451ee26f968b74236bfb297c0479d285bcb072435ea589', 5, 1, '0f4205b4907a70c3', 'zen-1xl4-us-west1-dddd', '019b76da-a800-71a6-a48e-9cda94e3bf91', 'us-central1', 'us-central1-a', '[0]', '2026-01-01 00:00:00+00', '2026-01-01 00:03:20+00', '2026-01-01 00:00:00+00', '2026-01-01 00:04:50+00', '2026-01-01 00:01:31+00', NULL, 0, 0, 0, NULL, 'yield_asked', NULL, '', NULL, NULL, NULL, NULL, 5, 0, false, 0, '2026-01-01 04:30:00+00', 0, NULL, NULL, NULL, 0, 1, 0, '', NULL, 987, NULL, 0, 0, NULL),
	('019b76da-a800-7ab1-b0ee-baa713deef86', 'default', '0', 'cancelled', '', '1xl4', 'CANCELLED', 500, '{}', '{"name": "", "spot": null, "after": [], "array": null, "group": null, "image": null, "shell": false, "job_id": "cancelled", "labels": {}, "cluster": null, "command": ["true"], "regions": [], "retries": 0, "user_id": "0", "deadline": null, "gpu_type": null, "priority": 500, "replicas": 1, "workflow": "", "cpu_cores": 0, "gpu_count": 1, "gpu_types": [], "memory_mb": 0, "same_zone": false, "tenant_id": "default", "keep_alive": false, "environment": {}, "working_dir": "", "allow_larger": null, "replicas_min": null, "stop_grace_s": 60.0, "gpu_memory_mb": 0, "max_runtime_s": 604800.0, "reschedulable": true, "resize_signal": "USR1", "workflow_args": {}, "regions_denied": [], "keep_entrypoint": false, "queue_timeout_s": 1000000000.0, "replace_members": false, "max_usd_per_hour": null, "agreed_usd_per_hour": null}', '69323a4f8edea40e10e978b91c7eda8372fa124561ed4180f1e03734e6c4d5d2', 2, 0, NULL, NULL, NULL, NULL, NULL, NULL, '2026-01-01 00:00:00+00', '2026-01-01 00:00:05+00', '2026-01-01 00:00:00+00', NULL, NULL, '2026-01-01 00:00:05+00', 0, 0, 0, NULL, 'stop_asked', NULL, '', NULL, NULL, NULL, NULL, 2, 0, false, 1, '2026-01-01 05:00:00+00', 0, NULL, NULL, NULL, 0, 1, 0, '', NULL, 1009, NULL, 0, 0, NULL),
	('019b76da-a800-7e01-9414-7073d17f9aca', 'default', '0', 'gang', '', '1xl4', 'QUEUED', 500, '{}', '{"name": "", "spot": null, "after": [], "array": null, "group": null, "image": null, "shell": false, "job_id": "gang", "labels": {}, "cluster": null, "command": ["true"], "regions": [], "retries": 0, "user_id": "0", "deadline": null, "gpu_type": null, "priority": 500, "replicas": 2, "workflow": "", "cpu_cores": 0, "gpu_count": 1, "gpu_types": [], "memory_mb": 0, "same_zone": false, "tenant_id": "default", "keep_alive": false, "environment": {}, "working_dir": "", "allow_larger": null, "replicas_min": null, "stop_grace_s": 60.0, "gpu_memory_mb": 0, "max_runtime_s": 604800.0, "reschedulable": true, "resize_signal": "USR1", "workflow_args": {}, "regions_denied": [], "keep_entrypoint": false, "queue_timeout_s": 1000000000.0, "replace_members": false, "max_usd_per_hour": null, "agreed_usd_per_hour": null}', '25c1e90e1f4340d51d5a5c028e65d9952e4cabf208aea77e72bfdc72ff740249', 1, 0, NULL, NULL, NULL, NULL, NULL, NULL, '2026-01-01 00:00:00+00', '2026-01-01 00:00:00+00', '2026-01-01 00:00:00+00', '2057-09-09 01:46:40+00', NULL, NULL, 0, 0, 0, NULL, 'submitted', NULL, '', NULL, NULL, NULL, NULL, 1, 0, false, 1, '2026-01-01 05:00:00+00', 0, NULL, NULL, '019b76da-a800-7e01-9414-7073d17f9aca', 0, 2, 0, '', NULL, NULL, NULL, 0, 0, NULL),
	('019b76da-a800-73d9-a344-5bb31738f7d9', 'vision', '0', 'provisioning', '', '1xl4', 'PROVISIONING', 500, '{}', '{"name": "", "spot": null, "after": [], "array": null, "group": null, "image": null, "shell": false, "job_id": "provisioning", "labels": {}, "cluster": null, "command": ["true"], "regions": [], "retries": 0, "user_id": "0", "deadline": null, "gpu_type": null, "priority": 500, "replicas": 1, "workflow": "", "cpu_cores": 0, "gpu_count": 1, "gpu_types": [], "memory_mb": 0, "same_zone": false, "tenant_id": "vision", "keep_alive": false, "environment": {}, "working_dir": "", "allow_larger": null, "replicas_min": null, "stop_grace_s": 60.0, "gpu_memory_mb": 0, "max_runtime_s": 604800.0, "reschedulable": true, "resize_signal": "USR1", "workflow_args": {}, "regions_denied": [], "keep_entrypoint": false, "queue_timeout_s": 1000000000.0, "replace_members": false, "max_usd_per_hour": null, "agreed_usd_per_hour": null}', '51da5759536490b26945c018e6f18cee845f2fb46afb5f1eb16f7c093ef8a04b', 2, 0, NULL, NULL, NULL, NULL, NULL, NULL, '2026-01-01 00:00:00+00', '2026-01-01 00:00:20+00', '2026-01-01 00:00:00+00', '2057-09-09 01:46:40+00', NULL, NULL, 0, 0, 0, NULL, 'admitted', NULL, '', NULL, NULL, NULL, NULL, 2, 0, false, 1, '2026-01-01 05:00:00+00', 0, NULL, NULL, NULL, 0, 1, 0, '', NULL, 968, NULL, 0, 0, NULL),
	('019b76da-a800-74ef-b43b-6a0b8f6d0558', 'default', '0', 'stopping', '', '1xl4', 'STOPPING', 500, '{}', '{"name": "", "spot": null, "after": [], "array": null, "group": null, "image": null, "shell": false, "job_id": "stopping", "labels": {}, "cluster": null, "command": ["true"], "regions": [], "retries": 0, "user_id": "0", "deadline": null, "gpu_type": null, "priority": 500, "replicas": 1, "workflow": "", "cpu_cores": 0, "gpu_count": 1, "gpu_types": [], "memory_mb": 0, "same_zone": false, "tenant_id": "default", "keep_alive": false, "environment": {}, "working_dir": "", "allow_larger": null, "replicas_min": null, "stop_grace_s": 60.0, "gpu_memory_mb": 0, "max_runtime_s": 604800.0, "reschedulable": true, "resize_signal": "USR1", "workflow_args": {}, "regions_denied": [], "keep_entrypoint": false, "queue_timeout_s": 1000000000.0, "replace_members": false, "max_usd_per_hour": null, "agreed_usd_per_hour": null}', 'ce3537e3b572ced4d4ed72b7311495c540990e709042a8a2e419d9e1be979a3a', 5, 1, '2e44158bae97ba94', 'zen-1xl4-us-west1-cccc', '019b76da-a800-7221-9ad3-2c904a23d596', 'us-central1', 'us-central1-a', '[0]', '2026-01-01 00:00:00+00', '2026-01-01 00:01:39+00', '2026-01-01 00:00:00+00', '2026-01-01 00:03:09+00', '2026-01-01 00:01:31+00', NULL, 0, 0, 0, NULL, 'stop_asked', 'user', '', NULL, NULL, NULL, NULL, 5, 0, false, 1, '2026-01-01 05:00:00+00', 0, NULL, NULL, NULL, 0, 1, 0, '', NULL, 982, NULL, 0, 0, NULL),
	('019b76da-a800-7506-a579-d8747731af10', 'default', '0', 'starting', '', '1xl4', 'STARTING', 500, '{}', '{"name": "", "spot": null, "after": [], "array": null, "group": null, "image": null, "shell": false, "job_id": "starting", "labels": {}, "cluster": null, "command": ["true"], "regions": [], "retries": 0, "user_id": "0", "deadline": null, "gpu_type": null, "priority": 500, "replicas": 1, "workflow": "", "cpu_cores": 0, "gpu_count": 1, "gpu_types": [], "memory_mb": 0, "same_zone": false, "tenant_id": "default", "keep_alive": false, "environment": {}, "working_dir": "", "allow_larger": null, "replicas_min": null, "stop_grace_s": 60.0, "gpu_memory_mb": 0, "max_runtime_s": 604800.0, "reschedulable": true, "resize_signal": "USR1", "workflow_args": {}, "regions_denied": [], "keep_entrypoint": false, "queue_timeout_s": 1000000000.0, "replace_members": false, "max_usd_per_hour": null, "agreed_usd_per_hour": null}', '0ae9fe6c79c8057e8aff25addc12e238efe9b761a3847cfc9373ff00358d9498', 4, 1, '7403e430ec66a787', 'zen-1xl4-us-west1-eeee', '019b76da-a800-79e7-9fc5-414934b9b5df', 'us-central1', 'us-central1-a', '[0]', '2026-01-01 00:00:00+00', '2026-01-01 00:01:32+00', '2026-01-01 00:00:00+00', '2026-01-01 00:06:32+00', NULL, NULL, 0, 0, 0, NULL, 'claimed', NULL, '', NULL, NULL, NULL, NULL, 4, 0, false, 1, '2026-01-01 05:00:00+00', 0, NULL, NULL, NULL, 0, 1, 0, '', NULL, 991, NULL, 0, 0, NULL),
	('019b76da-a800-73e7-a4c3-5bab14f4733f', 'vision', '0', 'done', '', '1xl4', 'SUCCEEDED', 500, '{}', '{"name": "", "spot": null, "after": [], "array": null, "group": null, "image": null, "shell": false, "job_id": "done", "labels": {}, "cluster": null, "command": ["true"], "regions": [], "retries": 2, "user_id": "0", "deadline": null, "gpu_type": null, "priority": 500, "replicas": 1, "workflow": "", "cpu_cores": 0, "gpu_count": 1, "gpu_types": [], "memory_mb": 0, "same_zone": false, "tenant_id": "vision", "keep_alive": false, "environment": {}, "working_dir": "", "allow_larger": null, "replicas_min": null, "stop_grace_s": 60.0, "gpu_memory_mb": 0, "max_runtime_s": 604800.0, "reschedulable": true, "resize_signal": "USR1", "workflow_args": {}, "regions_denied": [], "keep_entrypoint": false, "queue_timeout_s": 1000000000.0, "replace_members": false, "max_usd_per_hour": null, "agreed_usd_per_hour": null}', '1d740033387c3b6184ae8d3cadb599b8787f59220a77f5be9db98a5f09929fb4', 9, 2, NULL, NULL, NULL, NULL, NULL, NULL, '2026-01-01 00:00:00+00', '2026-01-01 02:00:00+00', '2026-01-01 01:00:00+00', NULL, '2026-01-01 01:01:50+00', '2026-01-01 02:00:00+00', 0, 1, 0, 0, 'exited_ok', NULL, '', NULL, NULL, NULL, NULL, 9, 0, false, 1, '2026-01-01 20:00:00+00', 7019, NULL, NULL, NULL, 0, 1, 0, '', NULL, 1000, NULL, 0, 0, NULL),
	('019b76da-a800-7eee-9afd-1b1a7d2caf82', 'default', '0', 'retried', '', '1xl4', 'QUEUED', 500, '{}', '{"name": "", "spot": null, "after": [], "array": null, "group": null, "image": null, "shell": false, "job_id": "retried", "labels": {}, "cluster": null, "command": ["true"], "regions": [], "retries": 1, "user_id": "0", "deadline": null, "gpu_type": null, "priority": 500, "replicas": 1, "workflow": "", "cpu_cores": 0, "gpu_count": 1, "gpu_types": [], "memory_mb": 0, "same_zone": false, "tenant_id": "default", "keep_alive": false, "environment": {}, "working_dir": "", "allow_larger": null, "replicas_min": null, "stop_grace_s": 60.0, "gpu_memory_mb": 0, "max_runtime_s": 604800.0, "reschedulable": true, "resize_signal": "USR1", "workflow_args": {}, "regions_denied": [], "keep_entrypoint": false, "queue_timeout_s": 1000000000.0, "replace_members": false, "max_usd_per_hour": null, "agreed_usd_per_hour": null}', '653626149528da2517aa032634cd6260a1eaa7da94ab5c03bb0fad7ff2d1a541', 5, 1, NULL, NULL, NULL, NULL, NULL, NULL, '2026-01-01 00:00:00+00', '2026-01-01 00:01:30+00', '2026-01-01 00:01:30+00', '2057-09-09 01:48:20+00', '2026-01-01 00:01:11+00', NULL, 1, 0, 0, 3, 'attempt 1 failed: exited_error; attempt 2 of 2 in 10 s', NULL, '', NULL, NULL, NULL, NULL, 5, 0, false, 1, '2026-01-01 05:00:00+00', 19, NULL, NULL, NULL, 0, 1, 0, '', NULL, 1006, NULL, 0, 0, '2026-01-01 00:01:40+00'),
	('019b76da-a800-78ed-b280-84d792b1d3f2', 'default', '0', 'timed-out', '', '1xl4', 'FAILED', 500, '{}', '{"name": "", "spot": null, "after": [], "array": null, "group": null, "image": null, "shell": false, "job_id": "timed-out", "labels": {}, "cluster": null, "command": ["true"], "regions": [], "retries": 0, "user_id": "0", "deadline": null, "gpu_type": null, "priority": 500, "replicas": 1, "workflow": "", "cpu_cores": 0, "gpu_count": 1, "gpu_types": [], "memory_mb": 0, "same_zone": false, "tenant_id": "default", "keep_alive": false, "environment": {}, "working_dir": "", "allow_larger": null, "replicas_min": null, "stop_grace_s": 60.0, "gpu_memory_mb": 0, "max_runtime_s": 604800.0, "reschedulable": true, "resize_signal": "USR1", "workflow_args": {}, "regions_denied": [], "keep_entrypoint": false, "queue_timeout_s": 1000000000.0, "replace_members": false, "max_usd_per_hour": null, "agreed_usd_per_hour": null}', '0d2920f2659b43240d7529f0330f22464ded2a3dd5944d9de73c09c8f6453243', 2, 0, NULL, NULL, NULL, NULL, NULL, NULL, '2026-01-01 00:00:00+00', '2026-01-01 00:00:05+00', '2026-01-01 00:00:00+00', NULL, NULL, '2026-01-01 00:00:05+00', 0, 0, 0, NULL, 'queue_timeout', NULL, '', NULL, NULL, NULL, NULL, 2, 0, false, 1, '2026-01-01 05:00:00+00', 0, NULL, NULL, NULL, 0, 1, 0, '', NULL, 1011, NULL, 0, 0, NULL),
	('019b76da-a800-7571-9669-529eb1fee08f', 'default', '0', 'gang.1', '', '1xl4', 'QUEUED', 500, '{}', '{"name": "", "spot": null, "after": [], "array": null, "group": null, "image": null, "shell": false, "job_id": "gang.1", "labels": {}, "cluster": null, "command": ["true"], "regions": [], "retries": 0, "user_id": "0", "deadline": null, "gpu_type": null, "priority": 500, "replicas": 2, "workflow": "", "cpu_cores": 0, "gpu_count": 1, "gpu_types": [], "memory_mb": 0, "same_zone": false, "tenant_id": "default", "keep_alive": false, "environment": {}, "working_dir": "", "allow_larger": null, "replicas_min": null, "stop_grace_s": 60.0, "gpu_memory_mb": 0, "max_runtime_s": 604800.0, "reschedulable": true, "resize_signal": "USR1", "workflow_args": {}, "regions_denied": [], "keep_entrypoint": false, "queue_timeout_s": 1000000000.0, "replace_members": false, "max_usd_per_hour": null, "agreed_usd_per_hour": null}', '08beb73826f47803ed1480533322dd2d96b9c23266039337f28dccfd9774f1a0', 1, 0, NULL, NULL, NULL, NULL, NULL, NULL, '2026-01-01 00:00:00+00', '2026-01-01 00:00:00+00', '2026-01-01 00:00:00+00', '2057-09-09 01:46:40+00', NULL, NULL, 0, 0, 0, NULL, 'submitted', NULL, '', NULL, NULL, NULL, NULL, 1, 0, false, 1, '2026-01-01 05:00:00+00', 0, NULL, NULL, '019b76da-a800-7e01-9414-7073d17f9aca', 1, 2, 0, '', NULL, NULL, NULL, 0, 0, NULL),
	('019b76da-a800-7ae6-9c85-60dcd269a9a5', 'default', '0', 'offered-to-v1', '', '1xt4', 'PROVISIONING', 500, '{}', '{"name": "", "spot": null, "after": [], "array": null, "group": null, "image": null, "shell": false, "job_id": "offered-to-v1", "labels": {}, "cluster": null, "command": ["true"], "regions": [], "retries": 0, "user_id": "0", "deadline": null, "gpu_type": null, "priority": 500, "replicas": 1, "workflow": "", "cpu_cores": 0, "gpu_count": 1, "gpu_types": [], "memory_mb": 0, "same_zone": false, "tenant_id": "default", "keep_alive": false, "environment": {}, "working_dir": "", "allow_larger": null, "replicas_min": null, "stop_grace_s": 60.0, "gpu_memory_mb": 0, "max_runtime_s": 604800.0, "reschedulable": true, "resize_signal": "USR1", "workflow_args": {}, "regions_denied": [], "keep_entrypoint": false, "queue_timeout_s": 1000000000.0, "replace_members": false, "max_usd_per_hour": null, "agreed_usd_per_hour": null}', '9948435bd61213bd78d817c8a20fb594a12b774f8afb026efee6c6cdb6ae1ba5', 3, 0, NULL, NULL, NULL, NULL, NULL, NULL, '2026-01-01 00:00:00+00', '2026-01-01 00:00:10+00', '2026-01-01 00:00:00+00', '2057-09-09 01:46:40+00', NULL, NULL, 0, 0, 0, NULL, 'admitted', NULL, '', NULL, NULL, NULL, NULL, 2, 0, false, 1, '2026-01-01 05:00:00+00', 0, NULL, NULL, NULL, 0, 1, 0, '', '{"at": "2026-01-01T00:01:00Z", "vm_uid": "019b76da-a800-748d-98b0-ce93b774eb52", "lease_id": "lease-v1"}', 1021, NULL, 0, 0, NULL);

INSERT INTO public.leader (one, holder, term, expires_at) VALUES
	(true, 'zen-scheduler-0', 1, '2026-11-18 03:23:19.913588+00');

INSERT INTO public.outbox (outbox_id, topic, body, attributes, ordering_key, published_at) OVERRIDING SYSTEM VALUE VALUES
	(2, 'jobs', '\x7b7d', '{"replayed": "m-2"}', 'key', NULL),
	(1, 'control', '\x7b2274797065223a20227374617274227d', '{"vm": "zen-1xl4-us-central1-aaaa"}', 'zen-1xl4-us-central1-aaaa', '2026-11-18 03:23:10.170509+00');

INSERT INTO public.region_status (cluster, region, target_size, why, observed_at) VALUES
	('1xl4', 'us-central1', 5, '3 jobs wait, 5 VMs', '2026-01-01 00:01:00+00'),
	('1xl4', 'us-east1', 0, 'stockout until 00:15:00 UTC', NULL);

INSERT INTO public.tenants (tenant_id, weight, priority_max, may_preempt, preemptible, quota, version, usage_gpu_s, usage_at, name, moved, deleted, consent) VALUES
	('default', 1, 9999, true, true, '{}', 1, 0, NULL, '', NULL, false, '{}'),
	('former', 1, 9999, true, true, '{}', 1, 0, NULL, '', 958, true, '{"spot": false, "allow_larger": false, "confirm_above_usd_per_hour": null}'),
	('vision', 2, 1999, false, true, '{"gpus": 16, "usd_per_day": 250.0, "gpus_by_type": {"h100": 8}}', 1, 3490, '2026-01-01 02:00:00+00', 'Vision team', 1000, false, '{"spot": true, "allow_larger": false, "confirm_above_usd_per_hour": 20.0}');

INSERT INTO public.troubles (region, zone, machine_type, spot, kind, since, last_seen, until, count, message) VALUES
	('us-east1', '', 'g2-standard-12', false, 'stockout', '2026-01-01 00:00:00+00', '2026-01-01 00:00:40+00', '2026-01-01 00:15:00+00', 3, 'ZONE_RESOURCE_POOL_EXHAUSTED'),
	('us-west4', 'global', 'a3-highgpu-8g', true, 'quota', '2026-01-01 00:00:00+00', '2026-01-01 00:00:40+00', '2026-01-01 00:15:00+00', 1, 'quota GPUS_ALL_REGIONS');

INSERT INTO public.vms (uid, name, cluster, region, zone, state, version, request_id, instance_id, boot_nonce, gpus, spot, usd_per_hour, leases, requested_at, state_since, running_since, ready_at, idle_since, last_beat_at, gone_at, taken, reason, readings, refused, stopped_at, settled_until, settled, address, health, kept_until, moved, together, ends_at, caused_by, idle_max_s, leaving_since) VALUES
	('019b76da-a800-76ca-b4eb-252b0f21ddb6', 'zen-1xl4-us-central1-aaaa', '1xl4', 'us-central1', 'us-central1-a', 'READY', 3, '39263059-f28c-405d-9fb1-7c2390c192cf', '1001', 'b1', 1, false, 2, '["0fd630f1f29d0da9"]', '2026-01-01 00:00:00+00', '2026-01-01 00:01:00+00', '2026-01-01 00:01:00+00', '2026-01-01 00:01:00+00', NULL, NULL, NULL, false, 'said READY', '[]', false, NULL, NULL, false, '10.0.0.2', '{}', NULL, 971, '', NULL, NULL, 0, NULL),
	('019b76da-a800-793b-9963-368595e60af5', 'zen-1xl4-us-central1-bbbb', '1xl4', 'us-central1', 'us-central1-b', 'READY', 3, '0becd7b0-3898-4190-b9eb-dacc0cb1e29c', '1002', 'b2', 1, false, 2, '["dbc496cb8e81973e"]', '2026-01-01 00:00:00+00', '2026-01-01 00:01:00+00', '2026-01-01 00:01:00+00', '2026-01-01 00:01:00+00', NULL, '2026-01-01 00:02:10+00', NULL, false, 'said READY', '[{"util": 87.0, "fault": "", "index": 0, "temp_c": 71.0, "ecc_errors": 1, "mem_used_mb": 12000.0}]', false, NULL, NULL, false, '', '{}', NULL, 974, '', NULL, '019b76da-a800-7181-a54c-66175d9dc9f8', 300, NULL),
	('019b76da-a800-7221-9ad3-2c904a23d596', 'zen-1xl4-us-west1-cccc', '1xl4', 'us-central1', '', 'READY', 3, '92276658-1e27-41c0-8a6a-63ec24ede6a4', '', '', 1, false, 2, '["2e44158bae97ba94"]', '2026-01-01 00:00:00+00', '2026-01-01 00:01:00+00', '2026-01-01 00:01:00+00', '2026-01-01 00:01:00+00', NULL, NULL, NULL, false, 'said READY', '[]', false, NULL, NULL, false, '', '{}', NULL, 980, '', NULL, NULL, 0, NULL),
	('019b76da-a800-71a6-a48e-9cda94e3bf91', 'zen-1xl4-us-west1-dddd', '1xl4', 'us-central1', '', 'READY', 3, '18f135d2-5f55-4203-b018-50c5a38fd547', '', '', 1, true, 2, '["0f4205b4907a70c3"]', '2026-01-01 00:00:00+00', '2026-01-01 00:01:00+00', '2026-01-01 00:01:00+00', '2026-01-01 00:01:00+00', NULL, NULL, NULL, false, 'said READY', '[]', false, NULL, NULL, false, '', '{}', NULL, 985, '', NULL, NULL, 0, NULL),
	('019b76da-a800-79e7-9fc5-414934b9b5df', 'zen-1xl4-us-west1-eeee', '1xl4', 'us-central1', '', 'READY', 3, 'c6f87718-6d76-407e-881e-d162ae2eb154', '', '', 1, false, 2, '["7403e430ec66a787"]', '2026-01-01 00:00:00+00', '2026-01-01 00:01:00+00', '2026-01-01 00:01:00+00', '2026-01-01 00:01:00+00', NULL, NULL, NULL, false, 'said READY', '[]', false, NULL, NULL, false, '', '{}', NULL, 990, '', NULL, NULL, 0, NULL),
	('019b76da-a800-7982-a51d-00c67f26144b', 'zen-1xl4-us-central1-iiii', '1xl4', 'us-central1', '', 'BOOTING', 2, 'd70820fe-119a-42d1-b4c9-df6acc011cdd', '', '', 1, false, 2, '[]', '2026-01-01 00:00:00+00', '2026-01-01 00:00:30+00', '2026-01-01 00:00:30+00', NULL, NULL, NULL, NULL, false, 'observed RUNNING', '[]', false, NULL, NULL, false, '', '{}', NULL, 1013, '', NULL, '019b76da-a800-752e-89a7-834df2a74de4', 0, NULL),
	('019b76da-a800-717f-9146-af60f1d69ed6', 'zen-1xl4-us-central1-jjjj', '1xl4', 'us-central1', '', 'REQUESTED', 1, '10a3d6b2-aa05-411a-b271-5945795e8229', '', '', 1, false, 2, '[]', '2026-01-01 00:00:00+00', '2026-01-01 00:00:00+00', NULL, NULL, NULL, NULL, NULL, false, '', '[]', false, NULL, NULL, false, '', '{}', NULL, 1014, '', NULL, NULL, 0, NULL),
	('019b76da-a800-70f8-ace5-3ecdbb2d420f', 'zen-1xl4-us-central1-kkkk', '1xl4', 'us-central1', '', 'DRAINING', 3, 'fe3b890b-93f4-48b3-a5aa-3c814f426dcb', '', '', 1, false, 2, '[]', '2026-01-01 00:00:00+00', '2026-01-01 00:06:40+00', '2026-01-01 00:01:00+00', '2026-01-01 00:01:00+00', '2026-01-01 00:01:00+00', NULL, NULL, false, 'idle for 300 s', '[]', false, NULL, NULL, false, '', '{}', NULL, 1017, '', NULL, NULL, 0, '2026-01-01 00:06:40+00'),
	('019b76da-a800-748d-98b0-ce93b774eb52', 'zen-1xt4-us-central1-llll', '1xt4', 'us-central1', '', 'READY', 2, '05c6af07-58d5-463d-ab2c-d31ee3151288', '', 'v1', 1, false, 2, '[]', '2026-01-01 00:00:00+00', '2026-01-01 00:00:50+00', '2026-01-01 00:00:40+00', '2026-01-01 00:00:50+00', '2026-01-01 00:00:50+00', NULL, NULL, false, 'said READY', '[]', false, NULL, NULL, false, '', '{}', '2026-01-01 02:30:00+00', 1020, 'zen-gang-x', '2026-01-01 22:13:20+00', NULL, 0, NULL),
	('019b76da-a800-7f0c-96bf-ec8a7631a992', 'zen-1xl4-us-central1-mmmm', '1xl4', 'us-central1', '', 'DELETING', 3, '7e62aa0a-1df9-4d78-9c65-39382b0537e6', '', '', 1, false, 2, '[]', '2026-01-01 00:00:00+00', '2026-01-01 00:06:40+00', '2026-01-01 00:01:00+00', '2026-01-01 00:01:00+00', '2026-01-01 00:01:00+00', NULL, NULL, false, 'its GPU is too hot', '[]', false, NULL, NULL, false, '', '{"gpus": [{"kind": "hot", "index": 0, "since": "2026-01-01T00:06:39Z", "reason": "is at 95 °C"}], "unready": "", "failures": []}', NULL, 1023, '', NULL, NULL, 0, '2026-01-01 00:06:40+00'),
	('019b76da-a800-75c9-8fe6-389d4cbd87ad', 'zen-1xl4-us-east1-ffff', '1xl4', 'us-central1', '', 'GONE', 6, 'c7a2ea20-b2f1-4c94-ae05-319acb5c7427', '', '', 1, false, 2, '[]', '2026-01-01 00:00:00+00', '2026-01-01 01:01:00+00', '2026-01-01 00:01:00+00', '2026-01-01 00:01:00+00', '2026-01-01 01:00:00+00', NULL, '2026-01-01 01:01:00+00', false, 'observed gone', '[]', false, '2026-01-01 01:00:50+00', '2026-01-01 01:00:50+00', true, '', '{}', NULL, 1001, '', NULL, NULL, 0, '2026-01-01 01:00:01+00'),
	('019b76da-a800-77eb-95fb-8173e00902c7', 'zen-1xl4-us-east1-gggg', '1xl4', 'us-central1', '', 'READY', 4, '9be4bcfc-49b6-4a08-b2e6-cc3ababced20', '', '', 1, false, 2, '[]', '2026-01-01 00:00:00+00', '2026-01-01 00:01:00+00', '2026-01-01 00:01:00+00', '2026-01-01 00:01:00+00', '2026-01-01 02:00:00+00', NULL, NULL, false, 'said READY', '[]', false, NULL, '2026-01-03 00:00:00+00', false, '', '{}', NULL, 1000, '', NULL, NULL, 0, NULL),
	('019b76da-a800-71e3-9ac2-863a830e07bc', 'zen-1xl4-us-east1-hhhh', '1xl4', 'us-central1', '', 'READY', 4, '26e87555-5790-482e-81d3-fcff2a3af4d4', '', '', 1, false, 2, '[]', '2026-01-01 00:00:00+00', '2026-01-01 00:01:00+00', '2026-01-01 00:01:00+00', '2026-01-01 00:01:00+00', '2026-01-01 00:01:30+00', NULL, NULL, false, 'said READY', '[]', false, NULL, '2026-01-03 00:00:00+00', false, '', '{}', NULL, 1007, '', NULL, NULL, 0, NULL);

INSERT INTO public.waits (hold, needs, job, user_id, group_id, good_only, over, bad, ready) VALUES
	('019b76da-a800-7128-a24b-e40ad23f0824', 'first', '019b76da-a800-7651-8317-1ff4a6a3a450', NULL, NULL, true, false, NULL, false),
	('019b76da-a800-7128-a24b-e40ad23f0824', 'sweep', NULL, 'ana', 'sweep', false, true, NULL, false);

SELECT pg_catalog.setval('public.alerts_alert_id_seq', 2, true);

SELECT pg_catalog.setval('public.outbox_outbox_id_seq', 2, true);

ALTER TABLE ONLY public.alembic_version
    ADD CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num);

ALTER TABLE ONLY public.alerts
    ADD CONSTRAINT pk_alerts PRIMARY KEY (alert_id);

ALTER TABLE ONLY public.attempts
    ADD CONSTRAINT pk_attempts PRIMARY KEY (uid, attempt);

ALTER TABLE ONLY public.cloud_requests
    ADD CONSTRAINT pk_cloud_requests PRIMARY KEY (request_id);

ALTER TABLE ONLY public.config_files
    ADD CONSTRAINT pk_config_files PRIMARY KEY (host, path);

ALTER TABLE ONLY public.config_versions
    ADD CONSTRAINT pk_config_versions PRIMARY KEY (version);

ALTER TABLE ONLY public.cost_daily
    ADD CONSTRAINT pk_cost_daily PRIMARY KEY (day, tenant_id, user_id, cluster, region, spot, kind);

ALTER TABLE ONLY public.dead_letters
    ADD CONSTRAINT pk_dead_letters PRIMARY KEY (message_id);

ALTER TABLE ONLY public.experience
    ADD CONSTRAINT pk_experience PRIMARY KEY (region, zone, machine_type, spot);

ALTER TABLE ONLY public.forecasts
    ADD CONSTRAINT pk_forecasts PRIMARY KEY (cluster);

ALTER TABLE ONLY public.job_costs
    ADD CONSTRAINT pk_job_costs PRIMARY KEY (uid, day, kind);

ALTER TABLE ONLY public.job_events
    ADD CONSTRAINT pk_job_events PRIMARY KEY (uid, seq);

ALTER TABLE ONLY public.job_waits
    ADD CONSTRAINT pk_job_waits PRIMARY KEY (uid, kind, region, key);

ALTER TABLE ONLY public.jobs
    ADD CONSTRAINT pk_jobs PRIMARY KEY (uid);

ALTER TABLE ONLY public.leader
    ADD CONSTRAINT pk_leader PRIMARY KEY (one);

ALTER TABLE ONLY public.outbox
    ADD CONSTRAINT pk_outbox PRIMARY KEY (outbox_id);

ALTER TABLE ONLY public.region_status
    ADD CONSTRAINT pk_region_status PRIMARY KEY (cluster, region);

ALTER TABLE ONLY public.tenants
    ADD CONSTRAINT pk_tenants PRIMARY KEY (tenant_id);

ALTER TABLE ONLY public.troubles
    ADD CONSTRAINT pk_troubles PRIMARY KEY (region, zone, machine_type, spot, kind);

ALTER TABLE ONLY public.vms
    ADD CONSTRAINT pk_vms PRIMARY KEY (uid);

ALTER TABLE ONLY public.waits
    ADD CONSTRAINT pk_waits PRIMARY KEY (hold, needs);

CREATE INDEX ix_alerts_cleared ON public.alerts USING btree (cleared_at) WHERE (cleared_at IS NOT NULL);

CREATE INDEX ix_alerts_newest ON public.alerts USING btree (raised_at DESC, alert_id DESC);

CREATE INDEX ix_attempts_vm_uid ON public.attempts USING btree (vm_uid, assigned_at);

CREATE INDEX ix_cloud_requests_open ON public.cloud_requests USING btree (created_at, request_id) WHERE (settled_at IS NULL);

CREATE INDEX ix_cloud_requests_settled ON public.cloud_requests USING btree (settled_at) WHERE (settled_at IS NOT NULL);

CREATE INDEX ix_config_versions_digest ON public.config_versions USING btree (digest, version);

CREATE INDEX ix_dead_letters_newest ON public.dead_letters USING btree (at DESC);

CREATE INDEX ix_job_costs_day ON public.job_costs USING btree (day);

CREATE INDEX ix_jobs_blocked ON public.jobs USING btree (blocked, uid) WHERE (blocked IS NOT NULL);

CREATE INDEX ix_jobs_fair ON public.jobs USING btree (cluster, tier, tenant_id, due_at, uid) WHERE ((status = 'QUEUED'::text) AND (blocked IS NULL));

CREATE INDEX ix_jobs_fifo ON public.jobs USING btree (cluster, queued_since, uid) WHERE ((status = 'QUEUED'::text) AND (blocked IS NULL));

CREATE INDEX ix_jobs_gang ON public.jobs USING btree (gang, rank) WHERE (gang IS NOT NULL);

CREATE INDEX ix_jobs_group ON public.jobs USING btree (group_id, user_id, submitted_at DESC, uid DESC) WHERE (group_id IS NOT NULL);

CREATE INDEX ix_jobs_group_open ON public.jobs USING btree (group_id, user_id, uid) WHERE ((group_id IS NOT NULL) AND (ended_at IS NULL));

CREATE INDEX ix_jobs_history_ends ON public.jobs USING btree (ended_at) WHERE ((ended_at IS NOT NULL) AND (NOT history_pruned));

CREATE INDEX ix_jobs_holds ON public.jobs USING btree (tenant_id) WHERE (status = ANY (ARRAY['ASSIGNED'::text, 'PREEMPTING'::text, 'PROVISIONING'::text, 'RUNNING'::text, 'STARTING'::text, 'STOPPING'::text]));

CREATE INDEX ix_jobs_labels ON public.jobs USING gin (labels jsonb_path_ops);

CREATE INDEX ix_jobs_moved ON public.jobs USING btree (moved) WHERE (moved IS NOT NULL);

CREATE INDEX ix_jobs_newest ON public.jobs USING btree (submitted_at DESC, uid DESC);

CREATE INDEX ix_jobs_queue ON public.jobs USING btree (cluster, priority DESC, queued_since, uid) WHERE ((status = 'QUEUED'::text) AND (blocked IS NULL));

CREATE INDEX ix_jobs_queue_ends ON public.jobs USING btree (deadline_at) WHERE (status = 'QUEUED'::text);

CREATE INDEX ix_jobs_status ON public.jobs USING btree (status, submitted_at DESC, uid DESC);

CREATE INDEX ix_jobs_tenant ON public.jobs USING btree (tenant_id, submitted_at DESC, uid DESC);

CREATE INDEX ix_jobs_vm_uid ON public.jobs USING btree (vm_uid) WHERE (vm_uid IS NOT NULL);

CREATE INDEX ix_outbox_unpublished ON public.outbox USING btree (outbox_id) WHERE (published_at IS NULL);

CREATE INDEX ix_tenants_moved ON public.tenants USING btree (moved) WHERE (moved IS NOT NULL);

CREATE INDEX ix_vms_caused_by ON public.vms USING btree (caused_by) WHERE (NOT settled);

CREATE INDEX ix_vms_gone ON public.vms USING btree (gone_at) WHERE ((state = 'GONE'::text) AND (leases = '[]'::jsonb));

CREATE INDEX ix_vms_gone_with_leases ON public.vms USING btree (uid) WHERE ((state = 'GONE'::text) AND (leases <> '[]'::jsonb));

CREATE INDEX ix_vms_living ON public.vms USING btree (cluster, state) WHERE (state <> 'GONE'::text);

CREATE INDEX ix_vms_moved ON public.vms USING btree (moved) WHERE (moved IS NOT NULL);

CREATE INDEX ix_vms_newest ON public.vms USING btree (requested_at DESC, uid DESC);

CREATE INDEX ix_vms_unsettled ON public.vms USING btree (uid) WHERE (NOT settled);

CREATE INDEX ix_waits_group ON public.waits USING btree (group_id, user_id) WHERE (group_id IS NOT NULL);

CREATE INDEX ix_waits_job ON public.waits USING btree (job) WHERE (job IS NOT NULL);

CREATE INDEX ix_waits_ready ON public.waits USING btree (hold) WHERE ready;

CREATE UNIQUE INDEX uq_alerts_open ON public.alerts USING btree (kind, subject) WHERE (cleared_at IS NULL);

CREATE UNIQUE INDEX uq_attempts_lease_id ON public.attempts USING btree (lease_id);

CREATE UNIQUE INDEX uq_job_events_dedup_key ON public.job_events USING btree (uid, dedup_key) WHERE (dedup_key IS NOT NULL);

CREATE UNIQUE INDEX uq_jobs_job_id_user_id ON public.jobs USING btree (job_id, user_id);

CREATE UNIQUE INDEX uq_vms_living_name ON public.vms USING btree (name) WHERE (state <> 'GONE'::text);

CREATE TRIGGER jobs_moved_insert BEFORE INSERT ON public.jobs FOR EACH ROW WHEN ((new.status <> 'QUEUED'::text)) EXECUTE FUNCTION public.zen_moved();

CREATE TRIGGER jobs_moved_update BEFORE UPDATE ON public.jobs FOR EACH ROW WHEN ((old.version IS DISTINCT FROM new.version)) EXECUTE FUNCTION public.zen_moved();

CREATE TRIGGER tenants_moved_insert BEFORE INSERT ON public.tenants FOR EACH ROW WHEN (true) EXECUTE FUNCTION public.zen_moved();

CREATE TRIGGER tenants_moved_update BEFORE UPDATE ON public.tenants FOR EACH ROW WHEN ((old.* IS DISTINCT FROM new.*)) EXECUTE FUNCTION public.zen_moved();

CREATE TRIGGER vms_moved_insert BEFORE INSERT ON public.vms FOR EACH ROW WHEN (true) EXECUTE FUNCTION public.zen_moved();

CREATE TRIGGER vms_moved_update BEFORE UPDATE ON public.vms FOR EACH ROW WHEN ((old.version IS DISTINCT FROM new.version)) EXECUTE FUNCTION public.zen_moved();

ALTER TABLE ONLY public.attempts
    ADD CONSTRAINT fk_attempts_uid FOREIGN KEY (uid) REFERENCES public.jobs(uid) ON DELETE CASCADE;

ALTER TABLE ONLY public.job_costs
    ADD CONSTRAINT fk_job_costs_uid FOREIGN KEY (uid) REFERENCES public.jobs(uid) ON DELETE CASCADE;

ALTER TABLE ONLY public.job_events
    ADD CONSTRAINT fk_job_events_uid FOREIGN KEY (uid) REFERENCES public.jobs(uid) ON DELETE CASCADE;

ALTER TABLE ONLY public.job_waits
    ADD CONSTRAINT fk_job_waits_uid FOREIGN KEY (uid) REFERENCES public.jobs(uid) ON DELETE CASCADE;

