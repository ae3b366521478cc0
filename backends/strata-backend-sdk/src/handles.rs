//! Handle tables: numbers for the host, values for us. A number is given once and never again, so
//! that a handle the host kept too long is recognised instead of reaching somebody else's value.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use strata_backend_abi::StrataHandle;

use crate::{Failure, Result};

/// Gives out numbers; shared by all tables of a plugin, so that a handle of one kind is never
/// valid as another kind.
#[derive(Debug)]
pub(crate) struct Numbers(AtomicU64);

impl Numbers {
    pub(crate) const fn new() -> Numbers {
        Numbers(AtomicU64::new(1))
    }

    fn next(&self) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed)
    }

    fn was_given(&self, id: u64) -> bool {
        id != 0 && id < self.0.load(Ordering::Relaxed)
    }
}

/// By number: the instance that the handle was made for, and the value.
type Values<T> = HashMap<u64, (u64, Arc<T>)>;

/// Live values of one kind. The map is absent until the first value, so that a table can be a static.
#[derive(Debug)]
pub(crate) struct Table<T> {
    /// `device`, `buffer`: for messages.
    kind: &'static str,
    live: Mutex<Option<Values<T>>>,
}

impl<T> Table<T> {
    pub(crate) const fn new(kind: &'static str) -> Table<T> {
        Table { kind, live: Mutex::new(None) }
    }

    pub(crate) fn insert(&self, numbers: &Numbers, instance: u64, value: Arc<T>) -> StrataHandle {
        let id = numbers.next();
        self.lock().get_or_insert_default().insert(id, (instance, value));
        StrataHandle { instance, id }
    }

    pub(crate) fn get(&self, numbers: &Numbers, handle: StrataHandle) -> Result<Arc<T>> {
        match self.lock().as_ref().and_then(|live| live.get(&handle.id)) {
            Some((instance, value)) if *instance == handle.instance => Ok(Arc::clone(value)),
            found => Err(self.refuse(numbers, handle, found.map(|(instance, _)| *instance))),
        }
    }

    pub(crate) fn remove(&self, numbers: &Numbers, handle: StrataHandle) -> Result<Arc<T>> {
        // The value leaves the lock before it can be dropped: its destructor is the plugin's code.
        let mut live = self.lock();
        let found = live.as_ref().and_then(|live| live.get(&handle.id)).map(|(instance, _)| *instance);
        match (found, live.as_mut()) {
            (Some(instance), Some(values)) if instance == handle.instance => match values.remove(&handle.id) {
                Some((_, value)) => Ok(value),
                None => Err(self.refuse(numbers, handle, None)),
            },
            _ => Err(self.refuse(numbers, handle, found)),
        }
    }

    /// Takes out all values for which `choose` is true.
    pub(crate) fn remove_where(&self, choose: impl Fn(&T) -> bool) -> Vec<Arc<T>> {
        let mut live = self.lock();
        let Some(values) = live.as_mut() else { return Vec::new() };
        values.extract_if(|_, (_, value)| choose(value)).map(|(_, (_, value))| value).collect()
    }

    /// Whether `choose` is true for any live value.
    pub(crate) fn any(&self, choose: impl Fn(&T) -> bool) -> bool {
        self.lock().as_ref().is_some_and(|live| live.values().any(|(_, value)| choose(value)))
    }

    fn lock(&self) -> MutexGuard<'_, Option<Values<T>>> {
        // No code of the plugin runs under this lock, so a poisoned map is still a whole one.
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn refuse(&self, numbers: &Numbers, handle: StrataHandle, owner: Option<u64>) -> Failure {
        let (kind, id) = (self.kind, handle.id);
        if let Some(owner) = owner {
            let instance = handle.instance;
            return Failure::host_bug(format_args!(
                "{kind} handle {id} belongs to plugin instance {owner}, not {instance}"
            ));
        }
        if id == 0 {
            Failure::host_bug(format_args!("no {kind} handle was given"))
        } else if numbers.was_given(id) {
            Failure::host_bug(format_args!("handle {id} is no live {kind}: it was freed, or is of another kind"))
        } else {
            Failure::host_bug(format_args!("handle {id} was never made by this plugin"))
        }
    }
}
