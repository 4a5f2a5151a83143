//! How the work of walking a sequence is dealt to threads.
//!
//! Batch rows and directions are independent: teams share nothing. Inside a team the hidden units are dealt to
//! its members, who wait for each other after every phase of a step. The first member never depends on another
//! one being scheduled: a phase's part that nobody has begun it takes itself. So a walk ends whatever the
//! thread pool is busy with, and whoever ran a part, the part computes the same bits.

use std::{
    ops::Range,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
};

/// Which rows, in how many parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Team {
    pub direction: usize,
    pub rows: Range<usize>,
    /// Units of each part, in the plan's granules.
    pub parts: Vec<Range<usize>>,
}

/// What a walk costs, for dealing it out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cost {
    pub directions: usize,
    pub batch: usize,
    /// Granules of units: what a part is made of.
    pub granules: usize,
    /// Multiplications and additions of one granule for one row and step.
    pub granule: usize,
    /// Bytes of weights a granule reads in each step.
    pub granule_bytes: usize,
    /// Times a team meets in each step.
    pub meetings: usize,
    /// Rows that a product takes at once.
    pub rows: usize,
    /// Multiplications and additions a cycle.
    pub rate: usize,
}

impl Cost {
    /// Cycles a step takes with this many row groups and unit parts for each direction.
    fn step(&self, row_parts: usize, unit_parts: usize) -> usize {
        /// Of a cache that each core has for itself.
        const NEAR: usize = 768 << 10;
        const MEETING: usize = 700;
        let rows = self.batch.div_ceil(row_parts);
        let granules = self.granules.div_ceil(unit_parts);
        // A product of few rows takes as long as reading its weights does.
        let groups = rows.div_ceil(self.rows);
        let bytes = granules * self.granule_bytes;
        let first = bytes / if bytes <= NEAR { 24 } else { 6 };
        let further = bytes / 24;
        let compute = granules * self.granule * rows / self.rate;
        let read = first.max(compute / groups) + (groups - 1) * further.max(compute / groups);
        read + if unit_parts > 1 { self.meetings * MEETING } else { 0 }
    }

    /// Teams for `threads` threads.
    pub fn plan(&self, threads: usize) -> Vec<Team> {
        let threads = (threads / self.directions).max(1);
        let mut best = (usize::MAX, 1, 1);
        for row_parts in 1..=threads.min(self.batch) {
            for unit_parts in 1..=(threads / row_parts).min(self.granules) {
                best = best.min((self.step(row_parts, unit_parts), row_parts, unit_parts));
            }
        }
        let (_, row_parts, unit_parts) = best;
        // Whole row groups, where there are enough.
        let group = if self.batch >= row_parts * self.rows { self.rows } else { 1 };
        let rows = deal(self.batch.div_ceil(group), row_parts)
            .map(|range| range.start * group..self.batch.min(range.end * group));
        let rows: Vec<_> = rows.filter(|rows| !rows.is_empty()).collect();
        let parts: Vec<_> = deal(self.granules, unit_parts).collect();
        (0..self.directions)
            .flat_map(|direction| {
                let parts = &parts;
                rows.iter().map(move |rows| Team { direction, rows: rows.clone(), parts: parts.clone() })
            })
            .collect()
    }
}

/// `count` things in `parts` ranges of about the same size.
fn deal(count: usize, parts: usize) -> impl Iterator<Item = Range<usize>> {
    (0..parts).map(move |part| part * count / parts..(part + 1) * count / parts)
}

/// Runs every team's phases: `work(team, phase, part)`. A phase begins when all parts of the one before are done.
pub(crate) fn run(teams: usize, parts: usize, phases: usize, work: impl Fn(usize, usize, usize) + Sync) {
    let alone = |team: usize| {
        for phase in 0..phases {
            (0..parts).for_each(|part| work(team, phase, part));
        }
    };
    if teams * parts == 1 {
        return alone(0);
    }
    if parts == 1 {
        return crate::pack::each(teams, true, alone);
    }
    let progress: Vec<_> = (0..teams).map(|_| Progress::new(parts)).collect();
    rayon::scope(|scope| {
        for (team, progress) in progress.iter().enumerate() {
            let work = &work;
            for part in 1..parts {
                scope.spawn(move |_| progress.take_part(part, phases, |phase, part| work(team, phase, part)));
            }
            if team > 0 {
                scope.spawn(move |_| progress.take_part(0, phases, |phase, part| work(team, phase, part)));
            }
        }
        progress[0].take_part(0, phases, |phase, part| work(0, phase, part));
    });
}

/// Where a team is.
struct Progress {
    members: Vec<Member>,
}

/// On cache lines of its own.
#[repr(align(128))]
struct Member {
    present: AtomicBool,
    /// Phases of this member's part that somebody has begun.
    begun: AtomicUsize,
    /// Phases of this member's part that are done.
    done: AtomicUsize,
}

impl Progress {
    fn new(parts: usize) -> Self {
        let member = || Member {
            present: AtomicBool::new(false),
            begun: AtomicUsize::new(0),
            done: AtomicUsize::new(0),
        };
        Self { members: (0..parts).map(|_| member()).collect() }
    }

    fn take_part(&self, me: usize, phases: usize, work: impl Fn(usize, usize)) {
        self.members[me].present.store(true, Ordering::Release);
        for phase in 0..phases {
            self.begin(me, phase, &work);
            for (other, member) in self.members.iter().enumerate() {
                let mut spins = 0u32;
                while member.done.load(Ordering::Acquire) <= phase {
                    // Late, or held up before it began: the first member goes on without it.
                    let late = !member.present.load(Ordering::Relaxed) || spins > LATE;
                    if me == 0 && late && self.begin(other, phase, &work) {
                        break;
                    }
                    spins += 1;
                    if spins.is_multiple_of(YIELD) {
                        std::thread::yield_now();
                    } else {
                        std::hint::spin_loop();
                    }
                }
            }
        }
    }

    /// Does a part of a phase, unless somebody has begun it.
    fn begin(&self, part: usize, phase: usize, work: impl Fn(usize, usize)) -> bool {
        let member = &self.members[part];
        let free =
            member.begun.compare_exchange(phase, phase + 1, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        if free {
            work(phase, part);
            member.done.store(phase + 1, Ordering::Release);
        }
        free
    }
}

/// Spins before a member that has not begun its part counts as held up: some microseconds.
const LATE: u32 = 200;
/// Spins before the processor is offered to others.
const YIELD: u32 = 1000;

#[cfg(test)]
mod tests {
    use super::*;

    fn cost(batch: usize, granules: usize) -> Cost {
        Cost {
            directions: 1,
            batch,
            granules,
            granule: 3 * 16 * 256,
            granule_bytes: 3 * 16 * 256 * 4,
            meetings: 1,
            rows: 8,
            rate: 32,
        }
    }

    #[test]
    fn every_row_and_unit_is_dealt_once() {
        for batch in [1, 2, 3, 7, 8, 9, 16, 33, 64, 100] {
            for granules in [1, 2, 5, 16] {
                for threads in 1..=9 {
                    for directions in 1..=2 {
                        let teams = Cost { directions, ..cost(batch, granules) }.plan(threads);
                        let mut seen = vec![0; directions * batch * granules];
                        for team in &teams {
                            for row in team.rows.clone() {
                                for granule in team.parts.iter().cloned().flatten() {
                                    seen[(team.direction * batch + row) * granules + granule] += 1;
                                }
                            }
                        }
                        assert!(seen.iter().all(|&times| times == 1), "{batch} {granules} {threads}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_single_row_is_dealt_by_units_and_many_by_rows() {
        assert_eq!(cost(1, 16).plan(2)[0].parts.len(), 2);
        assert_eq!(cost(64, 16).plan(2).len(), 2);
    }

    #[test]
    fn phases_run_in_order_whatever_the_pool() {
        for threads in 1..=4 {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            for (teams, parts) in [(1, 1), (1, 3), (3, 1), (2, 3), (1, 8)] {
                let phases = 200;
                let done: Vec<AtomicUsize> = (0..teams * parts).map(|_| AtomicUsize::new(0)).collect();
                pool.install(|| {
                    run(teams, parts, phases, |team, phase, part| {
                        for other in 0..parts {
                            let seen = done[team * parts + other].load(Ordering::Relaxed);
                            if parts > 1 {
                                assert!(seen == phase || seen == phase + 1);
                            }
                        }
                        assert_eq!(done[team * parts + part].fetch_add(1, Ordering::Relaxed), phase);
                    });
                });
                assert!(done.iter().all(|done| done.load(Ordering::Relaxed) == phases));
            }
        }
    }

    #[test]
    fn a_busy_pool_does_not_stop_two_walks_at_once() {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(2).build().unwrap();
        let done = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    pool.install(|| {
                        run(1, 2, 500, |_, _, _| {
                            done.fetch_add(1, Ordering::Relaxed);
                        });
                    })
                });
            }
        });
        assert_eq!(done.load(Ordering::Relaxed), 4 * 2 * 500);
    }
}
