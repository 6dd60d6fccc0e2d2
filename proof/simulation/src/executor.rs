//! A deterministic single-threaded executor in virtual time.
//!
//! Time moves only when no task can go on, straight to the next moment that somebody waits for. A task belongs to a
//! group, which is what dies in a crash, and works for an operation, which is what the network asks about a call.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use ratelimiter::clock::{Clock, Timestamp};

/// What dies together.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Group(pub(crate) usize);

/// Whose work a task does; a number that the world gives out.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Operation(pub(crate) usize);

/// The executor. Clones share it.
#[derive(Clone, Default)]
pub(crate) struct Executor {
    nanos: Arc<AtomicU64>,
    ready: Arc<Mutex<Ready>>,
    state: Arc<Mutex<State>>,
    halted: Arc<AtomicBool>,
}

#[derive(Default)]
struct State {
    next_task: usize,
    next_timer: u64,
    tasks: BTreeMap<usize, Task>,
    timers: BTreeMap<(Timestamp, u64), Waker>,
    running: Option<(usize, Group, Operation)>,
    /// The running task's group has died under it.
    running_is_dead: bool,
    /// Tasks are dropped because their group has died.
    is_killing: bool,
}

struct Task {
    group: Group,
    operation: Operation,
    waker: Arc<TaskWaker>,
    future: Pin<Box<dyn Future<Output = ()> + Send>>,
}

/// Tasks that can go on, in the order in which they were woken, each once.
#[derive(Default)]
struct Ready {
    order: VecDeque<usize>,
    listed: BTreeSet<usize>,
}

struct TaskWaker {
    task: usize,
    ready: Arc<Mutex<Ready>>,
}

/// A clock that is ahead of virtual time, or behind it, by as much as its machine was set wrong.
#[derive(Clone, Debug)]
pub(crate) struct SimulatedClock {
    nanos: Arc<AtomicU64>,
    skew_nanos: i64,
}

/// A wait for a moment, in one task.
pub(crate) struct Sleep {
    executor: Executor,
    at: Timestamp,
    /// Its number among the timers, once it has one.
    number: Option<u64>,
}

/// A place for one answer, which one task waits for.
pub(crate) struct Slot<T>(Arc<Mutex<SlotState<T>>>);

struct SlotState<T> {
    answer: Option<T>,
    waiter: Option<Waker>,
    senders: usize,
}

/// Whoever may fill a [`Slot`]. When the last one is gone, nobody will.
pub(crate) struct SlotSender<T>(Arc<Mutex<SlotState<T>>>);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Executor {
    pub(crate) fn starting_at(now: Timestamp) -> Self {
        let executor = Self::default();
        executor.nanos.store(now.unix_nanos(), Ordering::Relaxed);
        executor
    }

    pub(crate) fn now(&self) -> Timestamp {
        Timestamp::from_unix_nanos(self.nanos.load(Ordering::Relaxed))
    }

    pub(crate) fn clock(&self, skew_nanos: i64) -> SimulatedClock {
        SimulatedClock { nanos: Arc::clone(&self.nanos), skew_nanos }
    }

    pub(crate) fn spawn(
        &self,
        group: Group,
        operation: Operation,
        future: impl Future<Output = ()> + Send + 'static,
    ) {
        let mut state = lock(&self.state);
        let task = state.next_task;
        state.next_task += 1;
        let waker = Arc::new(TaskWaker { task, ready: Arc::clone(&self.ready) });
        waker.list();
        state.tasks.insert(task, Task { group, operation, waker, future: Box::pin(future) });
    }

    /// Spawns a task of the running one's group, for its operation; none if the dead ask for it.
    pub(crate) fn spawn_here(&self, future: impl Future<Output = ()> + Send + 'static) {
        let state = lock(&self.state);
        let is_dead = state.running_is_dead || state.is_killing;
        let running = state.running.filter(|_| !is_dead);
        drop(state);
        if let Some((_, group, operation)) = running {
            self.spawn(group, operation, future);
        }
    }

    /// Ends all tasks of a group where they are. If the running task is one of them, it ends at its next `await`.
    pub(crate) fn kill(&self, group: Group) {
        let mut state = lock(&self.state);
        let is_it = |(_, task): &(&usize, &Task)| task.group == group;
        let dead: Vec<usize> = state.tasks.iter().filter(is_it).map(|(id, _)| *id).collect();
        let dead: Vec<Task> = dead.iter().filter_map(|id| state.tasks.remove(id)).collect();
        state.running_is_dead |= state.running.is_some_and(|(_, running, _)| running == group);
        state.is_killing = true;
        drop(state);
        // Outside the lock, because what they drop may wake others.
        drop(dead);
        lock(&self.state).is_killing = false;
    }

    /// Whose work the running task does.
    pub(crate) fn operation(&self) -> Operation {
        self.running_operation().expect("it is asked from inside a task")
    }

    /// Whose work the running task does; `None` if none runs, because a dead one is dropped.
    pub(crate) fn running_operation(&self) -> Option<Operation> {
        lock(&self.state).running.map(|(_, _, operation)| operation)
    }

    pub(crate) fn sleep(&self, by: Duration) -> Sleep {
        self.sleep_until(self.now().after(by))
    }

    pub(crate) fn sleep_until(&self, at: Timestamp) -> Sleep {
        Sleep { executor: self.clone(), at, number: None }
    }

    /// Time leaps ahead, as when a machine is suspended: what waits for a moment in between goes on afterwards.
    pub(crate) fn leap(&self, by: Duration) {
        let nanos = u64::try_from(by.as_nanos()).expect("a leap of days");
        self.nanos.fetch_add(nanos, Ordering::Relaxed);
    }

    /// Runs everything that happens until `end`, `end` included. `Err` has the message of a task that panicked.
    pub(crate) fn run_until(&self, end: Timestamp) -> Result<(), String> {
        loop {
            while let Some(task) = self.next_ready() {
                self.poll(task)?;
            }
            if self.halted.load(Ordering::Relaxed) {
                return Ok(());
            }
            let mut state = lock(&self.state);
            let next = state.timers.first_entry().filter(|timer| timer.key().0 <= end);
            let Some(timer) = next else {
                drop(state);
                self.nanos.fetch_max(end.unix_nanos(), Ordering::Relaxed);
                return Ok(());
            };
            let at = timer.key().0;
            let waker = timer.remove();
            drop(state);
            self.nanos.fetch_max(at.unix_nanos(), Ordering::Relaxed);
            waker.wake();
        }
    }

    /// Nothing runs any more.
    pub(crate) fn halt(&self) {
        self.halted.store(true, Ordering::Relaxed);
    }

    fn next_ready(&self) -> Option<usize> {
        if self.halted.load(Ordering::Relaxed) { None } else { lock(&self.ready).pop() }
    }

    fn poll(&self, id: usize) -> Result<(), String> {
        let mut state = lock(&self.state);
        let Some(mut task) = state.tasks.remove(&id) else {
            return Ok(());
        };
        state.running = Some((id, task.group, task.operation));
        drop(state);
        let waker = Waker::from(Arc::clone(&task.waker));
        let mut context = Context::from_waker(&waker);
        let polled = catch_unwind(AssertUnwindSafe(|| task.future.as_mut().poll(&mut context)));
        let mut state = lock(&self.state);
        state.running = None;
        let is_dead = std::mem::take(&mut state.running_is_dead);
        match polled {
            Ok(Poll::Pending) if !is_dead => {
                state.tasks.insert(id, task);
                Ok(())
            }
            Ok(Poll::Pending | Poll::Ready(())) => {
                drop(state);
                drop(task);
                Ok(())
            }
            Err(panic) => {
                drop(state);
                let text = panic.downcast_ref::<String>().map(String::as_str);
                let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
                Err(text.unwrap_or("without a message").to_owned())
            }
        }
    }
}

impl Ready {
    fn pop(&mut self) -> Option<usize> {
        let task = self.order.pop_front()?;
        self.listed.remove(&task);
        Some(task)
    }
}

impl TaskWaker {
    fn list(&self) {
        let mut ready = lock(&self.ready);
        if ready.listed.insert(self.task) {
            ready.order.push_back(self.task);
        }
    }
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.list();
    }
}

impl Clock for SimulatedClock {
    fn now(&self) -> Timestamp {
        let nanos = self.nanos.load(Ordering::Relaxed);
        let nanos = nanos.checked_add_signed(self.skew_nanos);
        Timestamp::from_unix_nanos(nanos.expect("skews are small beside the date"))
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.at <= self.executor.now() {
            return Poll::Ready(());
        }
        if self.number.is_none() {
            let mut state = lock(&self.executor.state);
            let number = state.next_timer;
            state.next_timer += 1;
            state.timers.insert((self.at, number), context.waker().clone());
            drop(state);
            self.number = Some(number);
        }
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            lock(&self.executor.state).timers.remove(&(self.at, number));
        }
    }
}

impl<T> Slot<T> {
    pub(crate) fn new() -> (Self, SlotSender<T>) {
        let state = Arc::new(Mutex::new(SlotState { answer: None, waiter: None, senders: 1 }));
        (Self(Arc::clone(&state)), SlotSender(state))
    }

    /// The answer, or `None` if it has not come by `until` or nobody is left to give it.
    pub(crate) async fn wait(self, executor: &Executor, until: Timestamp) -> Option<T> {
        let mut sleep = executor.sleep_until(until);
        std::future::poll_fn(move |context| {
            let mut state = lock(&self.0);
            if state.answer.is_some() || state.senders == 0 {
                return Poll::Ready(state.answer.take());
            }
            state.waiter = Some(context.waker().clone());
            drop(state);
            Pin::new(&mut sleep).poll(context).map(|()| None)
        })
        .await
    }
}

impl<T> SlotSender<T> {
    /// Fills the slot, unless it was filled before.
    pub(crate) fn send(&self, answer: T) {
        let mut state = lock(&self.0);
        if state.answer.is_none() {
            state.answer = Some(answer);
        }
        let waiter = state.waiter.take();
        drop(state);
        if let Some(waiter) = waiter {
            waiter.wake();
        }
    }
}

impl<T> Clone for SlotSender<T> {
    fn clone(&self) -> Self {
        lock(&self.0).senders += 1;
        Self(Arc::clone(&self.0))
    }
}

impl<T> Drop for SlotSender<T> {
    fn drop(&mut self) {
        let mut state = lock(&self.0);
        state.senders -= 1;
        let waiter = if state.senders == 0 { state.waiter.take() } else { None };
        drop(state);
        if let Some(waiter) = waiter {
            waiter.wake();
        }
    }
}

impl fmt::Debug for Executor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Executor").field("now", &self.now()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Timestamp = Timestamp::from_unix_ms(1_000);

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn tasks_run_in_the_order_of_their_moments_and_then_of_their_numbers() {
        let executor = Executor::starting_at(START);
        let seen = Arc::new(Mutex::new(Vec::new()));
        for (name, at) in [("b", 2), ("c", 2), ("a", 1), ("never", 10)] {
            let (task, seen) = (executor.clone(), Arc::clone(&seen));
            executor.spawn(Group(0), Operation(0), async move {
                task.sleep(ms(at)).await;
                lock(&seen).push(name);
            });
        }
        executor.run_until(START.after(ms(9))).unwrap();
        assert_eq!(*lock(&seen), ["a", "b", "c"]);
        assert_eq!(executor.now(), START.after(ms(9)));
    }

    #[test]
    fn a_killed_group_goes_no_further_and_whoever_waits_for_it_learns_that() {
        let executor = Executor::starting_at(START);
        let (slot, sender) = Slot::<u8>::new();
        let sleeper = executor.clone();
        executor.spawn(Group(7), Operation(0), async move {
            sleeper.sleep(ms(5)).await;
            sender.send(1);
        });
        let waiter = executor.clone();
        let heard = Arc::new(Mutex::new(None));
        let hears = Arc::clone(&heard);
        executor.spawn(Group(0), Operation(0), async move {
            let answer = slot.wait(&waiter, START.after(ms(100))).await;
            *lock(&hears) = Some((answer, waiter.now()));
        });
        executor.run_until(START.after(ms(2))).unwrap();
        executor.kill(Group(7));
        executor.run_until(START.after(ms(50))).unwrap();
        assert_eq!(*lock(&heard), Some((None, START.after(ms(2)))));
    }

    #[test]
    fn what_a_task_spawns_is_of_its_group_and_not_begun_when_that_has_died() {
        let executor = Executor::starting_at(START);
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (spawns, sees) = (executor.clone(), Arc::clone(&seen));
        executor.spawn(Group(7), Operation(3), async move {
            let (first, second, here) = (Arc::clone(&sees), sees, spawns.clone());
            spawns.spawn_here(async move { lock(&first).push(here.operation()) });
            spawns.sleep(ms(1)).await;
            spawns.kill(Group(7));
            spawns.spawn_here(async move { lock(&second).push(Operation(0)) });
        });
        executor.run_until(START.after(ms(9))).unwrap();
        assert_eq!(*lock(&seen), [Operation(3)]);
    }

    #[test]
    fn what_the_dead_spawn_is_not_begun() {
        struct SpawnsWhenDropped(Executor, Arc<Mutex<bool>>);

        impl Drop for SpawnsWhenDropped {
            fn drop(&mut self) {
                let begun = Arc::clone(&self.1);
                self.0.spawn_here(async move { *lock(&begun) = true });
            }
        }

        let executor = Executor::starting_at(START);
        let begun = Arc::new(Mutex::new(false));
        let guard = SpawnsWhenDropped(executor.clone(), Arc::clone(&begun));
        executor.spawn(Group(7), Operation(0), async move {
            std::future::pending::<()>().await;
            drop(guard);
        });
        let kills = executor.clone();
        executor.spawn(Group(0), Operation(1), async move { kills.kill(Group(7)) });
        executor.run_until(START.after(ms(1))).unwrap();
        assert!(!*lock(&begun));
    }

    #[test]
    fn a_task_that_panics_is_reported() {
        let executor = Executor::starting_at(START);
        executor.spawn(Group(0), Operation(0), async { panic!("a rule does not hold") });
        assert_eq!(executor.run_until(START), Err("a rule does not hold".to_owned()));
    }
}
