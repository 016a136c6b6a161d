"""A month behind a simulated fleet, made up by SQL: load and cost in waves of days and weeks, plans, SLOs.

It ends in what the simulation has found: the cost of the plan in force, the rates that are declared.
"""

from __future__ import annotations

from datetime import datetime, timedelta

import psycopg

from app.store.database import partitions
from app.store.database.database import Database

PAST_PLANS = 2160  # a plan every 20 minutes of a month

# A random share of 1, the same for the same words; and the load at a moment as a multiple of the present one: the peak
# is in the afternoon, and weekends are quieter.
FUNCTIONS = """
    CREATE FUNCTION pg_temp.chance(words text) RETURNS float8 LANGUAGE sql IMMUTABLE AS $$
        SELECT CAST(('x' || substr(md5(words), 1, 8)) :: bit(32) :: bigint AS float8) / 4294967296
    $$;
    CREATE FUNCTION pg_temp.level(at timestamptz) RETURNS float8 LANGUAGE sql IMMUTABLE AS $$
        SELECT (1 + 0.3 * sin(2 * pi() * (EXTRACT(EPOCH FROM at) / 3600 - 8.5) / 24)
                  + 0.05 * sin(2 * pi() * EXTRACT(EPOCH FROM at) / 3600 / 5))
            * (1 - 0.04 * (SELECT count(*) FROM generate_series(-8, 8, 4) AS h
                           WHERE EXTRACT(ISODOW FROM at AT TIME ZONE 'UTC' + h * interval '1 hour') > 5))
            * (0.985 + 0.03 * pg_temp.chance(date_bin('20 minutes', at, '1970-01-01Z') :: text))
    $$;
    CREATE FUNCTION pg_temp.step(at timestamptz) RETURNS timestamptz LANGUAGE sql IMMUTABLE AS $$
        SELECT date_bin('20 minutes', at, '1970-01-01Z')
    $$;
    CREATE TEMP TABLE point AS
    SELECT at, pg_temp.step(at) AS step, level / (SELECT pg_temp.level(pg_temp.step(moment()))) AS wave,
           pg_temp.chance(at :: text) AS luck
    FROM (SELECT at, pg_temp.level(at) AS level
          FROM generate_series(date_trunc('minute', moment() - interval '31 days'), moment(), interval '1 minute') AS at
         ) AS levels;
    CREATE UNIQUE INDEX ON point (at);
    ANALYZE point;
    CREATE FUNCTION pg_temp.wave(wanted timestamptz) RETURNS float8 LANGUAGE sql STABLE AS $$
        SELECT wave FROM point WHERE at = wanted
    $$;
    CREATE TEMP TABLE now_costs AS
    SELECT CAST(solved_by -> 'amounts' ->> 'resourceCost' AS float8) AS planned, bound, gap,
           greatest((SELECT CAST(body ->> 'heldPerHour' AS float8) FROM outlook WHERE name = 'money'),
                    CAST(solved_by -> 'amounts' ->> 'resourceCost' AS float8)) AS held
    FROM plan WHERE state IN ('rolling', 'done') ORDER BY generation DESC LIMIT 1;
"""
# Held GPUs exceed the plan while copies hand over: in the minutes after each plan.
FLEET = """
    DELETE FROM fleet_minute;
    INSERT INTO fleet_minute (minute, held_cost, planned_cost, bound, gpus, busy_gpus, power_w, answers, errors, slow)
    SELECT minute,
           costs.held * level * (1 + CASE WHEN minute < plan + interval '4 minutes' THEN 0.03 * luck ELSE 0 END),
           costs.planned * level, costs.planned * level * (0.8 + 0.04 * pg_temp.chance(plan :: text || 'bound')),
           1000, 1000 * (0.36 * load + 0.03 * luck), 52000 + 88000 * load + 3000 * luck,
           120000 * load, 12 * luck,
           120000 * load * (0.003 + 0.004 * greatest(0, load - 1) + CASE
               WHEN minute BETWEEN moment() - interval '8 hours' AND moment() - interval '7 hours 20 minutes' THEN 0.03
               ELSE 0.0015 * luck END)
    FROM (SELECT point.at AS minute, point.step AS plan, point.wave AS load, planned.wave AS level, point.luck
          FROM point JOIN point AS planned ON planned.at = point.step) AS minutes, now_costs AS costs;
"""
# Most services miss a part of what their SLO allows; every sixtieth has missed more in the last half hour.
SERVICES = """
    CREATE TEMP TABLE served AS
    SELECT tenant, name, CAST(spec ->> 'ratePerSecond' AS float8) AS rate, (row_number() OVER (ORDER BY name)) AS place,
           1 - CAST(spec -> 'slo' ->> 'percentile' AS float8) / 100 AS allowed,
           0.15 + 0.5 * pg_temp.chance(name || 'slow') AS missed
    FROM object WHERE kind = 'Service';
    DELETE FROM service_load;
    DELETE FROM service_load_hour;
    INSERT INTO service_load (tenant, service, at, seconds, requests, answers, errors, slow, planned, low, high, bands,
        bands_held, hours_ahead)
    SELECT tenant, name, at, 60, asked, asked, 0,
           asked * allowed * CASE WHEN place % 60 = 7 AND at > moment() - interval '50 minutes' THEN 1.2 + 2 * missed
                                  ELSE missed * (0.5 + pg_temp.chance(name || at)) END,
           60 * rate * planned * 1.1, 60 * rate * planned * 0.93, 60 * rate * planned * 1.06,
           CAST(CAST(EXTRACT(MINUTE FROM at) AS int) % 10 = 0 AS int),
           CAST(CAST(EXTRACT(MINUTE FROM at) AS int) % 20 = 0 AS int),
           (SELECT array_agg(rate * planned * share)
            FROM unnest(ARRAY[.92, 1, 1.07, .89, .99, 1.1, .84, .97, 1.14]) AS share)
    FROM (SELECT served.*, point.at, planned.wave AS planned,
                 60 * rate * point.wave * (0.95 + 0.1 * pg_temp.chance(name || point.at)) AS asked
          FROM served, point JOIN point AS planned ON planned.at = point.step
          WHERE point.at > date_trunc('hour', moment()) - interval '1 hour') AS minutes;
    INSERT INTO service_load_hour (tenant, service, hour, seconds, requests, answers, errors, slow, planned, low, high,
        bands, bands_held)
    SELECT tenant, name, hour, 3600, asked, asked, 0, asked * allowed * missed * (0.5 + pg_temp.chance(name || hour)),
           asked * 1.1, asked * (0.91 + 0.05 * pg_temp.chance(name || hour)), asked * 1.07, 6, 5
    FROM (SELECT served.*, at AS hour,
                 3600 * rate * wave * (0.95 + 0.1 * pg_temp.chance(name || at)) AS asked
          FROM served, point
          WHERE at = date_trunc('hour', at) AND at BETWEEN date_trunc('hour', moment()) - interval '30 days'
              AND date_trunc('hour', moment()) - interval '2 hours') AS hours;
"""
PLANS = f"""
    UPDATE plan SET changes = '{{"start": 4, "move": 1, "stop": 1, "resize": 3}}';
    INSERT INTO plan (generation, epoch, at, lane, state, reason, base, snapshot, body, desired, method, solved_by,
                      cost, bound, gap, changes, services)
    SELECT n, 1, at, 'full', 'superseded', 'cycle', n - 1, '[]', '', '', 'exact',
           jsonb_build_object('amounts', jsonb_build_object('resourceCost', cost, 'unservedPerSecond', 0)), cost,
           cost / (1 + gap), gap,
           jsonb_build_object('start', greatest(0, round(60 * slope + 4 * luck)), 'move', round(3 * luck * luck),
                              'stop', greatest(0, round(4 * luck - 60 * slope)), 'resize', round(9 * luck)),
           ARRAY(SELECT tenant || '/' || name FROM served
                 WHERE pg_temp.chance(name || n) < 0.02 + 0.05 * luck ORDER BY name)
    FROM (SELECT n, at, costs.planned * pg_temp.wave(at) AS cost,
                 pg_temp.wave(at) - pg_temp.wave(at - interval '20 minutes') AS slope,
                 pg_temp.chance(n || 'plan') AS luck, 0.2 + 0.04 * pg_temp.chance(n || 'gap') AS gap
          FROM now_costs AS costs, generate_series(1, {PAST_PLANS}) AS n,
               LATERAL (SELECT pg_temp.step(moment()) - ({PAST_PLANS} - n) * interval '20 minutes' AS at) AS point
         ) AS plans
    WHERE at < moment() - interval '5 minutes';
"""
# Each GPU's day by the minute; services that took turns of four hours on it, by which its lanes are drawn.
NODES = """
    INSERT INTO gpu_minute
    SELECT at, name, gpu, 1, 'ok', 100 * least(1, busy), 4 + 8 * busy, 60 + 190 * busy, 70 + 200 * busy, 0,
           38 + 30 * busy, CASE WHEN busy > 0.9 THEN 1290 ELSE 1380 END,
           CASE WHEN busy > 0.9 THEN ARRAY['power_cap'] ELSE '{}' END
    FROM (SELECT at, object.name, gpu, (0.25 + 0.5 * pg_temp.chance(object.name || gpu)) * wave + 0.1 * luck AS busy
          FROM point, object, generate_series(0, CAST(object.spec ->> 'gpus' AS int) - 1) AS gpu
          WHERE kind = 'Node' AND at > moment() - interval '1 day' AND at < moment() - interval '2 minutes') AS minutes
    ON CONFLICT DO NOTHING;
    CREATE TEMP TABLE turn AS
    SELECT object.name AS node, 'past-' || gpu || '-' || turn AS instance, gpu, served.tenant, served.name AS service,
           moment() - (turn + 1) * interval '4 hours' AS begins, 30 + 10 * (turn % 4) AS sm_percent
    FROM object, generate_series(0, CAST(object.spec ->> 'gpus' AS int) - 1) AS gpu, generate_series(0, 5) AS turn
    JOIN served ON served.place = 1 + turn
    WHERE kind = 'Node';
    INSERT INTO assigned
    SELECT node, instance, gpu, tenant, service, '', sm_percent, 4, false, begins, begins + interval '4 hours'
    FROM turn;
    INSERT INTO usage_interval (node, id, instance, gpu, gpu_uuid, tenant, service, job, sm_percent, memory_gib,
        dedicated, started_at, ended_at, evidence)
    SELECT node, instance, instance, gpu, '', tenant, service, '', sm_percent, 4, false, begins,
           begins + interval '4 hours', 'measured' FROM turn;
"""
# Five parts in six are used, by service as its weight is; the rest is idle within GPUs, or on GPUs that nothing uses.
MONEY = """
    CREATE TEMP TABLE share AS
    SELECT tenant, name AS service, 'used' AS kind,
           power(pg_temp.chance(name), 3) / sum(power(pg_temp.chance(name), 3)) OVER () * 5 / 6 AS share FROM served
    UNION ALL VALUES ('', '', 'idle', 0.1), ('', '', 'unallocated', 1.0 / 15);
    CREATE TEMP TABLE hour_cost AS
    SELECT at AS hour, 1e9 * planned * wave AS nano FROM point, now_costs
    WHERE at = date_trunc('hour', at) AND at <= moment() - interval '1 hour'
        AND at >= date_trunc('day', moment(), 'UTC') - interval '30 days';
    INSERT INTO cost_hour
    SELECT hour, 'node', 0, 1, 'v100-pcie-16gb', 'eu', 'owned', tenant, service, '', '', kind, 'measured', 1,
           CAST(share * nano AS bigint)
    FROM hour_cost, share WHERE hour >= date_trunc('day', moment(), 'UTC');
    INSERT INTO cost_day
    SELECT day, 'node', 0, 1, 'v100-pcie-16gb', 'eu', 'owned', tenant, service, '', '', kind, 'measured', 1,
           CAST(share * nano AS bigint)
    FROM (SELECT date_trunc('day', hour, 'UTC') AS day, sum(nano) AS nano FROM hour_cost GROUP BY 1) AS days, share;
    INSERT INTO saving (hour, tenant, generation, plan_nano, one_per_gpu_nano, hetsev_nano, largest_nano, held_nano)
    SELECT hour, 'bench', 1, nano, nano * 2.6, nano * 1.4, nano * 1.9, nano * 1.01 FROM hour_cost;
"""


def leave_room(url: str) -> None:
    """Lets the leader's next plan follow those of the month."""
    with psycopg.connect(url) as connection:
        connection.execute(f"UPDATE lease SET generation = {PAST_PLANS}".encode())


def fill(url: str, at: datetime) -> None:
    """Puts the month before this moment, at which the database is."""
    database = Database(url, pool_size=1, direct=True)
    database.write(lambda connection: partitions.ensure(connection, [at, at - timedelta(days=1)]))
    database.close()
    with psycopg.connect(url) as connection:
        for sql in (FUNCTIONS, FLEET, SERVICES, PLANS, MONEY, NODES):
            connection.execute(sql.encode())
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(b"VACUUM ANALYZE")
