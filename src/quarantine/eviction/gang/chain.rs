//! What controls a pod, step by step.

use serde_json::Value;

use super::owners::{Kind, kind};
use crate::locate::{Owner, OwnerObject, PodFacts};

/// One step up from a pod.
#[derive(Debug, Clone, Copy)]
pub(super) struct Link<'a> {
    /// What it is called.
    pub owner: &'a Owner,
    /// The object; `None` if it was not read.
    pub raw: Option<&'a Value>,
}

/// The steps up from a pod, the nearest first. Only the last may be unread.
#[derive(Debug)]
pub(super) struct Chain<'a>(Vec<Link<'a>>);

impl<'a> Chain<'a> {
    /// Follow the controllers by their UIDs, so that an object of the same name that was read later or elsewhere does not count.
    pub(super) fn new(pod: &'a PodFacts, objects: &'a [OwnerObject]) -> Self {
        let mut links: Vec<Link<'a>> = Vec::new();
        let mut next = pod.controller.as_ref();
        // A ring of owners is possible, if not sensible.
        while let Some(owner) = next.filter(|next| links.iter().all(|link| link.owner.uid != next.uid)) {
            let object = objects.iter().find(|object| object.owner.uid == owner.uid);
            links.push(Link { owner, raw: object.map(|object| &object.raw) });
            next = object.and_then(|object| object.controller.as_ref());
        }
        Self(links)
    }

    /// All steps.
    pub(super) fn links(&self) -> &[Link<'a>] {
        &self.0
    }

    /// The last step; `None` for a bare pod.
    pub(super) fn top(&self) -> Option<Link<'a>> {
        self.0.last().copied()
    }

    /// The step of that kind.
    pub(super) fn of(&self, wanted: Kind) -> Option<Link<'a>> {
        self.0.iter().copied().find(|link| kind(link.owner) == Some(wanted))
    }
}
