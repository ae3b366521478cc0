//! The pages of a scheduler's cache: whose they are, and what is in those that nobody uses now. A
//! page with the keys and values of a prefix is found again by the tokens themselves, so a hit is
//! never a guess. Full pages are shared; a page of which only the beginning fits is copied. What the
//! device has no room for moves to host memory, within a budget, least recently used first.

use std::collections::HashMap;

use crate::engine::CacheStore;
use crate::error::EngineError;
use crate::kv_cache::{CacheLayout, PAGE_CELLS};

const CELLS: usize = PAGE_CELLS as usize;
/// Copying fewer cells than this costs about as much as computing them.
const LEAST_COPY: usize = 4;

type NodeId = usize;

/// What a scheduler's cache holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CacheFigures {
    /// Pages on the device, those that no request uses and that hold nothing, and those that no
    /// request uses but that hold a prefix.
    pub pages: u64,
    pub free_pages: u64,
    pub cached_pages: u64,
    pub page_bytes: u64,
    /// Positions of a page.
    pub page_tokens: u64,
    /// Prefixes in host memory, and their budget.
    pub host_bytes: u64,
    pub host_budget: u64,
}

#[derive(Debug)]
enum Place {
    Device(u32),
    Host(Box<[u8]>),
}

/// A page with known content.
#[derive(Debug)]
struct Node {
    parent: Option<NodeId>,
    tokens: Box<[u32]>,
    place: Place,
    /// Requests that read it.
    users: u32,
    children: Vec<NodeId>,
    depth: u32,
    last_used: u64,
}

/// A page of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PageRef {
    /// Known content, read by anybody.
    Shared { node: NodeId, page: u32 },
    /// Being written.
    Own(u32),
}

impl PageRef {
    pub(super) fn page(self) -> u32 {
        match self {
            PageRef::Shared { page, .. } | PageRef::Own(page) => page,
        }
    }
}

/// What is there of a prompt.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Found {
    full: Vec<NodeId>,
    /// A page of which the first cells fit.
    partial: Option<(NodeId, usize)>,
}

impl Found {
    /// Tokens that need not be evaluated.
    pub(super) fn reused(&self) -> usize {
        self.full.len() * CELLS + self.partial.map_or(0, |(_, cells)| cells)
    }
}

#[derive(Debug)]
pub(super) struct Pages {
    nodes: Vec<Option<Node>>,
    free_nodes: Vec<NodeId>,
    index: HashMap<(Option<NodeId>, Box<[u32]>), NodeId>,
    roots: Vec<NodeId>,
    free: Vec<u32>,
    /// Pages that there are on the device.
    total: u64,
    page_bytes: u64,
    host_bytes: u64,
    host_budget: u64,
    clock: u64,
}

impl Pages {
    pub(super) fn new(layout: &CacheLayout, host_budget: u64) -> Pages {
        Pages {
            nodes: Vec::new(),
            free_nodes: Vec::new(),
            index: HashMap::new(),
            roots: Vec::new(),
            free: (0..layout.n_pages() as u32).rev().collect(),
            total: layout.n_pages(),
            page_bytes: layout.page_bytes(),
            host_bytes: 0,
            host_budget,
            clock: 0,
        }
    }

    pub(super) fn figures(&self) -> CacheFigures {
        let unused = |node: &&Node| node.users == 0 && matches!(node.place, Place::Device(_));
        CacheFigures {
            pages: self.total,
            free_pages: self.free.len() as u64,
            cached_pages: self.nodes.iter().flatten().filter(unused).count() as u64,
            page_bytes: self.page_bytes,
            page_tokens: PAGE_CELLS,
            host_bytes: self.host_bytes,
            host_budget: self.host_budget,
        }
    }

    fn node(&self, id: NodeId) -> Option<&Node> {
        self.nodes.get(id).and_then(Option::as_ref)
    }

    fn node_mut(&mut self, id: NodeId) -> Option<&mut Node> {
        self.nodes.get_mut(id).and_then(Option::as_mut)
    }

    /// The longest prefix of a prompt that is there, at most all but its last token: logits come
    /// from evaluating one.
    pub(super) fn lookup(&self, prompt: &[u32]) -> Found {
        let mut rest = &prompt[..prompt.len().saturating_sub(1)];
        let mut found = Found::default();
        let mut parent = None;
        while let Some((page, after)) = rest.split_at_checked(CELLS) {
            let Some(node) = self.index.get(&(parent, Box::from(page))) else { break };
            found.full.push(*node);
            parent = Some(*node);
            rest = after;
        }
        let children = self.children(parent);
        let common = |id: &NodeId| {
            let node = self.node(*id)?;
            Some((*id, node.tokens.iter().zip(rest).take_while(|(a, b)| a == b).count()))
        };
        let best = children.iter().filter_map(common).max_by_key(|(id, cells)| (*cells, std::cmp::Reverse(*id)));
        found.partial = best.filter(|(_, cells)| *cells >= LEAST_COPY);
        found
    }

    /// Takes over what is there of a prompt: its pages, and how many tokens they hold.
    pub(super) fn adopt(&mut self, store: &CacheStore, prompt: &[u32]) -> Result<(Vec<PageRef>, u64), EngineError> {
        let found = self.lookup(prompt);
        self.clock += 1;
        // In use before anything is moved, so that making room for one takes none of the others.
        let all: Vec<NodeId> = found.full.iter().copied().chain(found.partial.map(|(node, _)| node)).collect();
        for id in &all {
            let clock = self.clock;
            if let Some(node) = self.node_mut(*id) {
                node.users += 1;
                node.last_used = clock;
            }
        }
        let mut pages = Vec::new();
        let taken = self.adopt_pages(store, &found, &mut pages);
        if let Some((node, _)) = found.partial {
            self.leave(node);
        }
        self.keep_to_budget();
        match taken {
            Ok(reused) => Ok((pages, reused as u64)),
            Err(error) => {
                for id in &found.full {
                    self.leave(*id);
                }
                self.free.extend(pages.iter().filter_map(|page| match page {
                    PageRef::Own(page) => Some(*page),
                    PageRef::Shared { .. } => None,
                }));
                Err(error)
            }
        }
    }

    /// Tokens that the pages hold now.
    fn adopt_pages(
        &mut self,
        store: &CacheStore,
        found: &Found,
        pages: &mut Vec<PageRef>,
    ) -> Result<usize, EngineError> {
        for id in &found.full {
            let page = self.on_device(store, *id)?;
            pages.push(PageRef::Shared { node: *id, page });
        }
        let full = found.full.len() * CELLS;
        let Some((id, cells)) = found.partial else { return Ok(full) };
        // The page that is copied from is in use as well, so for once there may be none to take.
        let Some(own) = self.take_if_any(store)? else { return Ok(full) };
        pages.push(PageRef::Own(own));
        match self.node(id).map(|node| &node.place) {
            Some(Place::Device(page)) => copy_page(store, *page, own, cells as u64)?,
            Some(Place::Host(bytes)) => write_page(store, own, bytes)?,
            None => {}
        }
        Ok(full + cells)
    }

    /// The page of a node, brought back to the device if it was moved away.
    fn on_device(&mut self, store: &CacheStore, id: NodeId) -> Result<u32, EngineError> {
        if let Some(Node { place: Place::Device(page), .. }) = self.node(id) {
            return Ok(*page);
        }
        let page = self.take(store)?;
        let page_bytes = self.page_bytes;
        let Some(node) = self.node_mut(id) else { return Ok(page) };
        let written = if let Place::Host(bytes) = &node.place { write_page(store, page, bytes) } else { Ok(()) };
        if let Err(error) = written {
            self.free.push(page);
            return Err(error);
        }
        node.place = Place::Device(page);
        self.host_bytes -= page_bytes;
        Ok(page)
    }

    /// A page to write to. There is always one: all requests together never have more pages than
    /// there are.
    pub(super) fn take(&mut self, store: &CacheStore) -> Result<u32, EngineError> {
        let none = EngineError::NoFreeSession { sessions: store.layout.n_sequences as u32 };
        self.take_if_any(store)?.ok_or(none)
    }

    fn take_if_any(&mut self, store: &CacheStore) -> Result<Option<u32>, EngineError> {
        if let Some(page) = self.free.pop() {
            return Ok(Some(page));
        }
        let unused = |node: &Node| node.users == 0 && matches!(node.place, Place::Device(_));
        let Some(id) = self.oldest(unused) else { return Ok(None) };
        self.move_away(store, id)
    }

    /// Least recently used; of those of one path, the one farthest from its root.
    fn oldest(&self, wanted: impl Fn(&Node) -> bool) -> Option<NodeId> {
        let nodes = self.nodes.iter().enumerate().filter_map(|(id, node)| Some((id, node.as_ref()?)));
        let found = nodes.filter(|(_, node)| wanted(node));
        found.min_by_key(|(_, node)| (node.last_used, std::cmp::Reverse(node.depth))).map(|(id, _)| id)
    }

    /// Frees the page of a node that nobody uses: to host memory within the budget, else for good.
    fn move_away(&mut self, store: &CacheStore, id: NodeId) -> Result<Option<u32>, EngineError> {
        let page_bytes = self.page_bytes;
        let Some(Node { place: Place::Device(page), .. }) = self.node(id) else { return Ok(None) };
        let page = *page;
        if page_bytes <= self.host_budget {
            let bytes = read_page(store, page, page_bytes)?;
            if let Some(node) = self.node_mut(id) {
                node.place = Place::Host(bytes);
            }
            self.host_bytes += page_bytes;
            self.keep_to_budget();
        } else {
            self.forget(id);
        }
        Ok(Some(page))
    }

    fn keep_to_budget(&mut self) {
        while self.host_bytes > self.host_budget {
            let leaf =
                |node: &Node| node.users == 0 && node.children.is_empty() && matches!(node.place, Place::Host(_));
            let Some(oldest) = self.oldest(leaf) else { break };
            self.forget(oldest);
        }
    }

    /// Removes a node; its page, if on the device, is the caller's. Children go with it.
    fn forget(&mut self, id: NodeId) {
        let Some(node) = self.nodes.get_mut(id).and_then(Option::take) else { return };
        for child in &node.children {
            if let Some(Node { place: Place::Device(page), .. }) = self.node(*child) {
                self.free.push(*page);
            }
            self.forget(*child);
        }
        if let Place::Host(_) = node.place {
            self.host_bytes -= self.page_bytes;
        }
        match node.parent.and_then(|parent| self.node_mut(parent)) {
            Some(parent) => parent.children.retain(|child| *child != id),
            None => self.roots.retain(|root| *root != id),
        }
        self.index.remove(&(node.parent, node.tokens));
        self.free_nodes.push(id);
    }

    /// Makes a page that was written findable. Returns what the request holds instead: the page
    /// that is known already when another request was faster.
    pub(super) fn publish(&mut self, parent: Option<NodeId>, tokens: &[u32], page: u32) -> PageRef {
        self.clock += 1;
        let clock = self.clock;
        let key = (parent, Box::from(tokens));
        if let Some(id) = self.index.get(&key).copied() {
            let page_bytes = self.page_bytes;
            if let Some(node) = self.node_mut(id) {
                node.users += 1;
                node.last_used = clock;
                if let Place::Device(known) = node.place {
                    self.free.push(page);
                    return PageRef::Shared { node: id, page: known };
                }
                node.place = Place::Device(page);
                self.host_bytes -= page_bytes;
                return PageRef::Shared { node: id, page };
            }
        }
        let depth = parent.and_then(|parent| self.node(parent)).map_or(0, |parent| parent.depth + 1);
        let node = Node {
            parent,
            tokens: Box::from(tokens),
            place: Place::Device(page),
            users: 1,
            children: Vec::new(),
            depth,
            last_used: clock,
        };
        let id = if let Some(id) = self.free_nodes.pop() {
            self.nodes[id] = Some(node);
            id
        } else {
            self.nodes.push(Some(node));
            self.nodes.len() - 1
        };
        match parent.and_then(|parent| self.node_mut(parent)) {
            Some(parent) => parent.children.push(id),
            None => self.roots.push(id),
        }
        self.index.insert(key, id);
        self.drop_beginnings(parent, id);
        PageRef::Shared { node: id, page }
    }

    /// The nodes that continue another one, or that begin a prompt.
    fn children(&self, parent: Option<NodeId>) -> &[NodeId] {
        parent.and_then(|parent| self.node(parent)).map_or(&self.roots, |parent| &parent.children)
    }

    /// What an unfinished page held is of no use beside one that goes on from it.
    fn drop_beginnings(&mut self, parent: Option<NodeId>, longer: NodeId) {
        let Some(tokens) = self.node(longer).map(|node| &node.tokens) else { return };
        let is_beginning = |id: &NodeId| {
            *id != longer
                && self
                    .node(*id)
                    .is_some_and(|node| node.users == 0 && node.children.is_empty() && tokens.starts_with(&node.tokens))
        };
        let beginnings: Vec<NodeId> = self.children(parent).iter().copied().filter(is_beginning).collect();
        for id in beginnings {
            if let Some(Node { place: Place::Device(page), .. }) = self.node(id) {
                self.free.push(*page);
            }
            self.forget(id);
        }
    }

    fn leave(&mut self, id: NodeId) {
        if let Some(node) = self.node_mut(id) {
            node.users = node.users.saturating_sub(1);
        }
    }

    /// The pages of a request that ended. `rest` are the tokens of its last page when that one is
    /// not full.
    pub(super) fn release(&mut self, mut pages: Vec<PageRef>, rest: &[u32]) {
        let own_from = pages.iter().position(|page| matches!(page, PageRef::Own(_))).unwrap_or(pages.len());
        let parent = own_from.checked_sub(1).and_then(|before| match pages[before] {
            PageRef::Shared { node, .. } => Some(node),
            PageRef::Own(_) => None,
        });
        let is_known = |id: &NodeId| self.node(*id).is_some_and(|node| node.tokens.starts_with(rest));
        if rest.len() >= LEAST_COPY
            && !self.children(parent).iter().any(is_known)
            && let Some(PageRef::Own(page)) = pages.get(own_from).copied()
        {
            pages[own_from] = self.publish(parent, rest, page);
        }
        self.clock += 1;
        let clock = self.clock;
        for page in pages {
            match page {
                PageRef::Own(page) => self.free.push(page),
                PageRef::Shared { node, .. } => {
                    self.leave(node);
                    if let Some(node) = self.node_mut(node) {
                        node.last_used = clock;
                    }
                }
            }
        }
    }
}

fn copy_page(store: &CacheStore, from: u32, to: u32, cells: u64) -> Result<(), EngineError> {
    let runs = store.layout.page_runs(from, cells).zip(store.layout.page_runs(to, cells));
    for ((from, bytes), (to, _)) in runs {
        store.buffer.copy_to(from, &store.buffer, to, bytes)?;
    }
    Ok(())
}

fn read_page(store: &CacheStore, page: u32, page_bytes: u64) -> Result<Box<[u8]>, EngineError> {
    let mut all = vec![0; page_bytes as usize].into_boxed_slice();
    let mut rest = &mut all[..];
    for (offset, bytes) in store.layout.page_runs(page, PAGE_CELLS) {
        let (run, after) = rest.split_at_mut(bytes as usize);
        store.buffer.read(offset, run)?;
        rest = after;
    }
    Ok(all)
}

fn write_page(store: &CacheStore, page: u32, all: &[u8]) -> Result<(), EngineError> {
    let mut rest = all;
    for (offset, bytes) in store.layout.page_runs(page, PAGE_CELLS) {
        let (run, after) = rest.split_at(bytes as usize);
        store.buffer.write(offset, run)?;
        rest = after;
    }
    Ok(())
}
