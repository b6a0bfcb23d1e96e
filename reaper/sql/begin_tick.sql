-- Begins a tick unless another one began less than `quiet_seconds` ago, and says where it begins.
--
-- This is what makes a pile-up of reap messages, or several beats, cost no-ops. Safe to repeat: the
-- second one finds the first. A start in the future is of a clock that was set back: ignored.
--
-- Where to begin: at -infinity, that is, at all leases, as long as that is cheap. A held snapshot
-- keeps the index entries of all leases that ended since, and walking past them is all the cost an
-- idle tick has; where it takes longer than `free_seconds`, the next full scan waits `wait_factor`
-- times as long, at most `wait_max_seconds`; ticks until then begin at `scanned_to`: before it all was
-- looked at. Always all: a clock set back, a poison row due again, a tick by hand.
--
-- Parameters
--   quiet_seconds     half the interval, seconds; 0 begins in any case
--   scan_all          true looks at all leases in any case
--   free_seconds      a full scan as cheap as this is never put off, seconds
--   wait_factor       how many times its cost a full scan is put off
--   wait_max_seconds  it is put off no longer than this, seconds
-- Returns one row (scan_from as text) if the tick may go on, none if not.
-- Locks: the one row of reaper.ticks, for this statement only.
-- Index: none needed, one row; reaper.deferred holds a few.
UPDATE reaper.ticks AS t
SET started_at = clock_timestamp()
WHERE t.started_at <= clock_timestamp() - make_interval(secs => %(quiet_seconds)s)
    OR t.started_at > clock_timestamp() + interval '1 second'
RETURNING (
    CASE
        WHEN %(scan_all)s
            OR t.full_scan_took <= make_interval(secs => %(free_seconds)s)
            OR t.full_scan_at <= now() - least(
                t.full_scan_took * %(wait_factor)s, make_interval(secs => %(wait_max_seconds)s)
            )
            OR greatest(t.full_scan_at, t.scanned_to) > now()
            OR EXISTS (SELECT FROM reaper.deferred AS d WHERE d.until <= now())
            THEN '-infinity'
        ELSE t.scanned_to
    END
)::text
