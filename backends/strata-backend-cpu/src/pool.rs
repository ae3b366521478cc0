//! The worker threads and how they share a run.
//!
//! A run is a list of stages, a stage is a number of chunks that may be done in any order by
//! anyone. Workers do not meet at barriers: a stage is over when all its chunks are, whoever did
//! them, so a worker that the system has put aside holds nobody up unless it holds a chunk. The
//! caller takes part; it can finish a run alone. Which worker does a chunk never changes a result.
//!
//! Stage counters carry the number of the run. A worker that comes late finds another number
//! there, or no chunks left, and goes back to wait; it never touches a buffer without having
//! claimed a chunk, and a claimed chunk keeps the run alive.
//!
//! A worker that the system puts aside in the middle of a chunk does hold up the others, for as long
//! as its slice of time is away. When that happens run after run (another program wants the same
//! core), short runs are done by the caller alone for a while: see [`Company`].
//!
//! It knows nothing of tensors. Called by device.rs; the work behind a chunk is program.rs.
#![expect(unsafe_code, reason = "setting the threads' CPU affinity is a system call")]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long an idle worker looks for the next run before it sleeps: longer than the host needs
/// between two tokens, short enough to cost nothing when it has stopped asking.
const IDLE_SPIN: Duration = Duration::from_micros(150);
/// Looks at a counter that are not worth being timed: the ends of a stage's last chunks.
const SPINS_OF_A_MOMENT: u32 = 100;
/// Looks at a counter before going to sleep: some ten microseconds, longer than the ends of a
/// decode stage's chunks lie apart.
const SPINS_BEFORE_SLEEP: u32 = 2_000;

/// Work that workers can share.
pub(crate) trait Job: Send + Sync {
    fn stages(&self) -> &[Stage];
    /// Does one chunk. Called once per chunk and run, by whoever claimed it.
    fn chunk(&self, stage: usize, chunk: usize, worker: usize);
    /// Takes the text of a panic inside a chunk; the run goes on and its result is void.
    fn panicked(&self, text: String);
}

/// Counters of one stage: run number in the high half, chunks in the low half.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(crate) struct Stage {
    /// Chunks that nobody has claimed.
    unclaimed: AtomicU64,
    /// Chunks that are not finished.
    pending: AtomicU64,
    /// Chunks in all; changes only while nobody can hold one.
    chunks: AtomicU32,
}

enum Claim {
    Chunk(usize),
    Exhausted,
    /// Another run is on; this worker came late.
    Stale,
}

const LOW: u64 = 0xffff_ffff;

impl Stage {
    /// Sets up the stage for a run. Only while no run of its job is on.
    pub(crate) fn arm(&self, run: u32, chunks: usize) {
        let word = (u64::from(run) << 32) | (chunks as u64 & LOW);
        self.chunks.store(chunks as u32, Ordering::Relaxed);
        self.pending.store(word, Ordering::Relaxed);
        self.unclaimed.store(word, Ordering::Release);
    }

    fn claim(&self, run: u32) -> Claim {
        let mut word = self.unclaimed.load(Ordering::Acquire);
        loop {
            if (word >> 32) as u32 != run {
                return Claim::Stale;
            }
            if word & LOW == 0 {
                return Claim::Exhausted;
            }
            match self.unclaimed.compare_exchange_weak(word, word - 1, Ordering::AcqRel, Ordering::Acquire) {
                // In rising order: what was fetched ahead of a chunk's end is the next chunk's beginning.
                Ok(_) => return Claim::Chunk((self.chunks.load(Ordering::Relaxed) - (word & LOW) as u32) as usize),
                Err(now) => word = now,
            }
        }
    }

    /// Counts a chunk as done and wakes those who wait for the last one.
    fn finish(&self, gate: &Gate) {
        let before = self.pending.fetch_sub(1, Ordering::SeqCst);
        if before & LOW == 1 {
            gate.open();
        }
    }

    /// Whether every chunk is done; `None` when another run is on.
    fn is_over(&self, run: u32) -> Option<bool> {
        let word = self.pending.load(Ordering::SeqCst);
        ((word >> 32) as u32 == run).then_some(word & LOW == 0)
    }

    /// Waits until every chunk is done; `false` when another run is on. Adds the time beyond a
    /// moment to `stalled`.
    fn wait(&self, run: u32, gate: &Gate, stalled: &mut Duration) -> bool {
        if let Some(over) = self.spin(run, SPINS_OF_A_MOMENT) {
            return over;
        }
        let begin = Instant::now();
        let over = self.spin(run, SPINS_BEFORE_SLEEP).unwrap_or_else(|| {
            gate.sleep_until(|| self.is_over(run) != Some(false));
            self.is_over(run).is_some()
        });
        *stalled += begin.elapsed();
        over
    }

    /// Looks a number of times; `None`: neither over nor another run yet.
    fn spin(&self, run: u32, looks: u32) -> Option<bool> {
        for _ in 0..looks {
            match self.is_over(run) {
                Some(true) => return Some(true),
                Some(false) => std::hint::spin_loop(),
                None => return Some(false),
            }
        }
        None
    }
}

/// Where workers sleep for the end of a stage. Sleeping and not yielding: a thread that yields a
/// contended CPU goes to the end of the line, one that sleeps comes back at once when it is woken.
#[derive(Debug, Default)]
struct Gate {
    sleepers: AtomicU32,
    lock: Mutex<()>,
    changed: Condvar,
}

impl Gate {
    fn sleep_until(&self, over: impl Fn() -> bool) {
        // Counted before the look under the lock: whoever ends the stage after that look sees the
        // count, and cannot get the lock before this thread waits.
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        let mut guard = lock(&self.lock);
        while !over() {
            guard = self.changed.wait(guard).unwrap_or_else(PoisonError::into_inner);
        }
        drop(guard);
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
    }

    fn open(&self) {
        if self.sleepers.load(Ordering::SeqCst) > 0 {
            drop(lock(&self.lock));
            self.changed.notify_all();
        }
    }
}

/// Takes part in a run until it is over (or turns out to be over already). Returns how long it
/// had to wait for others beyond what ends of stages take.
fn take_part(job: &dyn Job, run: u32, worker: usize, gate: &Gate) -> Duration {
    let mut stalled = Duration::ZERO;
    for (index, stage) in job.stages().iter().enumerate() {
        loop {
            match stage.claim(run) {
                Claim::Chunk(chunk) => {
                    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| job.chunk(index, chunk, worker))) {
                        job.panicked(panic_text(panic.as_ref()));
                    }
                    stage.finish(gate);
                }
                Claim::Exhausted => break,
                Claim::Stale => return stalled,
            }
        }
        if !stage.wait(run, gate, &mut stalled) {
            break;
        }
    }
    stalled
}

/// Decides whether a short run is shared, from how the last ones went.
#[derive(Debug)]
struct Company {
    /// Shared runs in a row that spent much of their time waiting.
    bad: u32,
    /// Runs still to be done alone.
    alone: u32,
    /// Length of the next stretch alone.
    stretch: u32,
}

impl Company {
    /// This many bad runs in a row are no accident.
    const BAD: u32 = 3;
    const SHORTEST: u32 = 8;
    const LONGEST: u32 = 64;

    const NEW: Company = Company { bad: 0, alone: 0, stretch: Company::SHORTEST };

    fn wanted(&mut self) -> bool {
        let wanted = self.alone == 0;
        self.alone = self.alone.saturating_sub(1);
        wanted
    }

    /// Takes note of a run shared by `n` workers. Alone it would take `n` times as long without the
    /// waiting, at most; some of that is allowed for the part that a hindered worker did not do.
    fn judge(&mut self, n: usize, total: Duration, stalled: Duration) {
        if total.saturating_sub(stalled) * (3 * n as u32) > total * 4 {
            *self = Company::NEW;
            return;
        }
        self.bad += 1;
        if self.bad >= Company::BAD {
            // The next try is one run; if it is bad too, the stretch after it is longer.
            self.bad = Company::BAD - 1;
            self.alone = self.stretch;
            self.stretch = (self.stretch * 2).min(Company::LONGEST);
        }
    }
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()))
        .unwrap_or_else(|| "panic without a text".to_owned())
}

struct Shared {
    /// Number of the newest published run.
    newest: AtomicU32,
    /// The run that may be joined.
    open: Mutex<Option<(u32, Arc<dyn Job>)>>,
    stop: AtomicBool,
    gate: Gate,
    /// Per worker thread: it sleeps and wants to be woken.
    asleep: Vec<AtomicBool>,
}

/// The threads of a device. Dropping it ends them.
pub(crate) struct Pool {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    last_run: u32,
    company: Company,
}

impl Pool {
    /// Starts `n_workers - 1` threads; the caller of [`Pool::run`] is the first worker.
    pub(crate) fn new(n_workers: usize, pin_to: &[usize]) -> std::io::Result<Pool> {
        let n_threads = n_workers.saturating_sub(1);
        let shared = Arc::new(Shared {
            newest: AtomicU32::new(0),
            open: Mutex::new(None),
            stop: AtomicBool::new(false),
            gate: Gate::default(),
            asleep: (0..n_threads).map(|_| AtomicBool::new(false)).collect(),
        });
        let mut pool = Pool { shared, threads: Vec::with_capacity(n_threads), last_run: 0, company: Company::NEW };
        for thread in 0..n_threads {
            let shared = Arc::clone(&pool.shared);
            let pin_to = pin_to.to_vec();
            let name = format!("strata-cpu-{}", thread + 1);
            pool.threads.push(std::thread::Builder::new().name(name).spawn(move || {
                pin(&pin_to);
                serve(&shared, thread);
            })?);
        }
        Ok(pool)
    }

    pub(crate) fn n_workers(&self) -> usize {
        self.threads.len() + 1
    }

    /// Runs a job whose stage `i` has `chunks(i)` chunks. Returns when all of them are done. A long
    /// run is always shared; a `short` one (a token or a few) only while that pays.
    pub(crate) fn run(&mut self, job: &Arc<dyn Job>, short: bool, chunks: impl Fn(usize) -> usize) {
        self.last_run = self.last_run.wrapping_add(1);
        let run = self.last_run;
        let mut worth_sharing = false;
        for (index, stage) in job.stages().iter().enumerate() {
            let n = chunks(index);
            worth_sharing |= n > 1;
            stage.arm(run, n);
        }
        let share = worth_sharing && !self.threads.is_empty() && (!short || self.company.wanted());
        if !share {
            take_part(job.as_ref(), run, 0, &self.shared.gate);
            return;
        }
        self.publish(job, run);
        let begin = Instant::now();
        let stalled = take_part(job.as_ref(), run, 0, &self.shared.gate);
        if short {
            let n = self.n_workers();
            self.company.judge(n, begin.elapsed(), stalled);
        }
        // Workers that have not joined yet must not keep the job, and so its buffers, alive.
        *lock(&self.shared.open) = None;
    }

    /// Opens a run to the workers and wakes those that sleep.
    fn publish(&self, job: &Arc<dyn Job>, run: u32) {
        *lock(&self.shared.open) = Some((run, Arc::clone(job)));
        self.shared.newest.store(run, Ordering::SeqCst);
        for (asleep, thread) in self.shared.asleep.iter().zip(&self.threads) {
            if asleep.swap(false, Ordering::SeqCst) {
                thread.thread().unpark();
            }
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        for thread in self.threads.drain(..) {
            thread.thread().unpark();
            // A worker cannot panic: chunks are guarded. If one did, there is nobody left to tell.
            let _ = thread.join();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A worker thread's life.
fn serve(shared: &Shared, thread: usize) {
    let mut seen = 0;
    while !shared.stop.load(Ordering::SeqCst) {
        seen = await_run(shared, thread, seen);
        let open = lock(&shared.open).clone();
        if let Some((run, job)) = open {
            seen = run;
            take_part(job.as_ref(), run, thread + 1, &shared.gate);
        }
    }
}

/// Waits for a run newer than `seen`, first looking, then asleep. Returns its number.
fn await_run(shared: &Shared, thread: usize, seen: u32) -> u32 {
    let news = || {
        let newest = shared.newest.load(Ordering::SeqCst);
        (newest != seen || shared.stop.load(Ordering::SeqCst)).then_some(newest)
    };
    let begin = Instant::now();
    while begin.elapsed() < IDLE_SPIN {
        for _ in 0..64 {
            if let Some(newest) = news() {
                return newest;
            }
            std::hint::spin_loop();
        }
    }
    loop {
        // Said before the last look, so that a run published after that look wakes us.
        shared.asleep[thread].store(true, Ordering::SeqCst);
        if let Some(newest) = news() {
            shared.asleep[thread].store(false, Ordering::SeqCst);
            return newest;
        }
        std::thread::park();
    }
}

/// Keeps the calling thread on the given CPUs. Best effort: a refusal leaves it where it was.
#[cfg(target_os = "linux")]
fn pin(cpus: &[usize]) {
    if cpus.is_empty() {
        return;
    }
    let mut words = [0_u64; 256];
    for cpu in cpus {
        if let Some(word) = words.get_mut(cpu / 64) {
            *word |= 1 << (cpu % 64);
        }
    }
    // SAFETY: the mask is a plain bit array of the size that is passed, alive through the call; 0
    // names the calling thread.
    unsafe { libc::sched_setaffinity(0, size_of_val(&words), words.as_ptr().cast()) };
}

/// Keeps the calling thread on the given CPUs: not possible here.
#[cfg(not(target_os = "linux"))]
fn pin(_cpus: &[usize]) {}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    /// Stage s adds s + 1 to each of its cells; a cell's value tells how often its chunk ran, and
    /// `order` that no stage began before the one before it was over.
    struct Counting {
        stages: Vec<Stage>,
        chunks: Vec<usize>,
        done: Vec<AtomicUsize>,
        out_of_order: AtomicUsize,
        panics: Mutex<Vec<String>>,
        panic_at: Option<(usize, usize)>,
        workers: Vec<AtomicUsize>,
    }

    impl Counting {
        fn new(chunks: &[usize]) -> Counting {
            Counting {
                stages: chunks.iter().map(|_| Stage::default()).collect(),
                chunks: chunks.to_vec(),
                done: chunks.iter().map(|_| AtomicUsize::new(0)).collect(),
                out_of_order: AtomicUsize::new(0),
                panics: Mutex::new(Vec::new()),
                panic_at: None,
                workers: (0..64).map(|_| AtomicUsize::new(0)).collect(),
            }
        }
    }

    impl Job for Counting {
        fn stages(&self) -> &[Stage] {
            &self.stages
        }

        fn chunk(&self, stage: usize, chunk: usize, worker: usize) {
            assert!(chunk < self.chunks[stage]);
            assert!(self.panic_at != Some((stage, chunk)), "chunk {chunk} of stage {stage}");
            let before =
                stage.checked_sub(1).map(|stage| (self.done[stage].load(Ordering::Relaxed), self.chunks[stage]));
            if before.is_some_and(|(done, chunks)| !done.is_multiple_of(chunks.max(1))) {
                self.out_of_order.fetch_add(1, Ordering::Relaxed);
            }
            self.workers[worker].fetch_add(1, Ordering::Relaxed);
            self.done[stage].fetch_add(1, Ordering::Relaxed);
        }

        fn panicked(&self, text: String) {
            self.panics.lock().unwrap().push(text);
        }
    }

    fn run_often(n_workers: usize, runs: usize) -> Arc<Counting> {
        let counting = Arc::new(Counting::new(&[1, 7, 0, 64, 1, 1, 13]));
        let job: Arc<dyn Job> = Arc::<Counting>::clone(&counting);
        let mut pool = Pool::new(n_workers, &[]).unwrap();
        for _ in 0..runs {
            pool.run(&job, false, |stage| counting.chunks[stage]);
        }
        drop(pool);
        counting
    }

    #[test]
    fn every_chunk_once_and_in_order() {
        for n_workers in [1, 2, 3] {
            let counting = run_often(n_workers, 500);
            for (done, chunks) in counting.done.iter().zip(&counting.chunks) {
                assert_eq!(done.load(Ordering::Relaxed), chunks * 500);
            }
            assert_eq!(counting.out_of_order.load(Ordering::Relaxed), 0);
            assert!(counting.panics.lock().unwrap().is_empty());
        }
    }

    #[test]
    fn many_more_workers_than_cores_finish() {
        let begin = Instant::now();
        let counting = run_often(24, 100);
        assert_eq!(counting.done[3].load(Ordering::Relaxed), 6400);
        assert_eq!(counting.out_of_order.load(Ordering::Relaxed), 0);
        assert!(begin.elapsed() < Duration::from_secs(30), "{:?}", begin.elapsed());
    }

    #[test]
    fn a_panic_is_told_and_the_run_ends() {
        let mut counting = Counting::new(&[3, 3]);
        counting.panic_at = Some((0, 1));
        let counting = Arc::new(counting);
        let job: Arc<dyn Job> = Arc::<Counting>::clone(&counting);
        let mut pool = Pool::new(2, &[]).unwrap();
        pool.run(&job, false, |_| 3);
        assert_eq!(*counting.panics.lock().unwrap(), ["chunk 1 of stage 0"]);
        assert_eq!(counting.done[1].load(Ordering::Relaxed), 3);
    }

    #[test]
    fn a_job_is_released_after_its_run() {
        let counting = Arc::new(Counting::new(&[4]));
        let job: Arc<dyn Job> = Arc::<Counting>::clone(&counting);
        let mut pool = Pool::new(3, &[]).unwrap();
        pool.run(&job, false, |_| 4);
        drop(job);
        let begin = Instant::now();
        while Arc::strong_count(&counting) > 1 {
            assert!(begin.elapsed() < Duration::from_secs(10), "a worker keeps the job");
            std::thread::yield_now();
        }
    }

    #[test]
    fn bad_company_is_left_and_tried_again() {
        let (long, none) = (Duration::from_millis(9), Duration::ZERO);
        let mut company = Company::NEW;
        let alone = |company: &mut Company| (0..1000).take_while(|_| !company.wanted()).count();
        for _ in 0..2 {
            company.judge(2, long, long / 2);
            assert_eq!(alone(&mut company), 0);
        }
        for expected in [8, 16, 32, 64, 64] {
            company.judge(2, long, long / 2);
            assert_eq!(alone(&mut company), expected);
        }
        company.judge(2, long, none);
        for _ in 0..2 {
            company.judge(2, long, long / 2);
            assert_eq!(alone(&mut company), 0);
        }
        // Sixteen workers lose more by parting than by waiting half the time.
        for _ in 0..9 {
            company.judge(16, long, long / 2);
            assert_eq!(alone(&mut company), 0);
        }
        // One good run among bad ones is enough.
        company.judge(2, long, long / 10);
        company.judge(2, long, long / 2);
        assert_eq!(alone(&mut company), 0);
    }

    /// A worker that is put aside in every chunk, as on a core that another program has.
    struct Hindered(Counting);

    impl Job for Hindered {
        fn stages(&self) -> &[Stage] {
            self.0.stages()
        }

        fn chunk(&self, stage: usize, chunk: usize, worker: usize) {
            self.0.chunk(stage, chunk, worker);
            std::thread::sleep(Duration::from_micros(if worker == 0 { 200 } else { 5_000 }));
        }

        fn panicked(&self, text: String) {
            self.0.panicked(text);
        }
    }

    #[test]
    fn short_runs_go_on_without_a_hindered_worker() {
        let hindered = Arc::new(Hindered(Counting::new(&[4, 4])));
        let job: Arc<dyn Job> = Arc::<Hindered>::clone(&hindered);
        let mut pool = Pool::new(2, &[]).unwrap();
        for _ in 0..100 {
            pool.run(&job, true, |_| 4);
        }
        let others = hindered.0.workers[1].load(Ordering::Relaxed);
        assert_eq!(hindered.0.done[1].load(Ordering::Relaxed), 400);
        assert!(others <= 100, "the hindered worker did {others} of 800 chunks");
    }

    #[test]
    fn sleeping_workers_are_woken() {
        let counting = Arc::new(Counting::new(&[64]));
        let job: Arc<dyn Job> = Arc::<Counting>::clone(&counting);
        let mut pool = Pool::new(2, &[]).unwrap();
        for _ in 0..5 {
            std::thread::sleep(Duration::from_millis(3));
            pool.run(&job, false, |_| 64);
        }
        assert_eq!(counting.done[0].load(Ordering::Relaxed), 320);
    }
}
