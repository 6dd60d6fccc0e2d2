//! The scripts, each a file of its own.

use redis::Script;

use crate::options::TimeSource;

const PRELUDE: &str = include_str!("scripts/prelude.lua");
/// What the scripts of a [`RedisDocument`](crate::RedisDocument) have instead.
const DOCUMENT_PRELUDE: &str = include_str!("scripts/document.lua");
/// What only some scripts need: a line `--@ name` includes it. A function is made each time that a script comes by, so what is rarely needed stands
/// where it is needed.
const INCLUDES: [(&str, &str); 12] = [
    ("bounds", include_str!("scripts/bounds.lua")),
    ("collect", include_str!("scripts/collect.lua")),
    ("debts", include_str!("scripts/debts.lua")),
    ("decimals", include_str!("scripts/decimals.lua")),
    ("forget", include_str!("scripts/forget.lua")),
    ("gather", include_str!("scripts/gather.lua")),
    ("hints", include_str!("scripts/hints.lua")),
    ("instances", include_str!("scripts/instances.lua")),
    ("parts", include_str!("scripts/parts.lua")),
    ("past", include_str!("scripts/past.lua")),
    ("primary", include_str!("scripts/document_primary.lua")),
    ("take_out", include_str!("scripts/take_out.lua")),
];

/// One of the scripts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ScriptName {
    Reserve,
    Complete,
    Renew,
    States,
    Leases,
    Forgive,
    GiveUp,
    Generation,
    Definitions,
    Define,
    Realign,
    Sweep,
    Ready,
    DocumentPeek,
    DocumentRead,
    DocumentOwn,
    DocumentLock,
    DocumentRelease,
    DocumentStage,
    DocumentCommit,
    DocumentDiscard,
}

/// The text of a script and its hash, by which Redis knows it.
#[derive(Debug)]
pub(crate) struct LoadedScript {
    pub(crate) text: String,
    pub(crate) sha: String,
}

/// All scripts.
#[derive(Debug)]
pub(crate) struct Scripts([LoadedScript; ScriptName::ALL.len()]);

impl ScriptName {
    const ALL: [Self; 21] = [
        Self::Reserve,
        Self::Complete,
        Self::Renew,
        Self::States,
        Self::Leases,
        Self::Forgive,
        Self::GiveUp,
        Self::Generation,
        Self::Definitions,
        Self::Define,
        Self::Realign,
        Self::Sweep,
        Self::Ready,
        Self::DocumentPeek,
        Self::DocumentRead,
        Self::DocumentOwn,
        Self::DocumentLock,
        Self::DocumentRelease,
        Self::DocumentStage,
        Self::DocumentCommit,
        Self::DocumentDiscard,
    ];

    const fn is_of_document(self) -> bool {
        self as usize >= Self::DocumentPeek as usize
    }

    const fn text(self) -> &'static str {
        match self {
            Self::Reserve => include_str!("scripts/reserve.lua"),
            Self::Complete => include_str!("scripts/complete.lua"),
            Self::Renew => include_str!("scripts/renew.lua"),
            Self::States => include_str!("scripts/states.lua"),
            Self::Leases => include_str!("scripts/leases.lua"),
            Self::Forgive => include_str!("scripts/forgive.lua"),
            Self::GiveUp => include_str!("scripts/give_up.lua"),
            Self::Generation => include_str!("scripts/generation.lua"),
            Self::Definitions => include_str!("scripts/definitions.lua"),
            Self::Define => include_str!("scripts/define.lua"),
            Self::Realign => include_str!("scripts/realign.lua"),
            Self::Sweep => include_str!("scripts/sweep.lua"),
            Self::Ready => include_str!("scripts/ready.lua"),
            Self::DocumentPeek => include_str!("scripts/document_peek.lua"),
            Self::DocumentRead => include_str!("scripts/document_read.lua"),
            Self::DocumentOwn => include_str!("scripts/document_own.lua"),
            Self::DocumentLock => include_str!("scripts/document_lock.lua"),
            Self::DocumentRelease => include_str!("scripts/document_release.lua"),
            Self::DocumentStage => include_str!("scripts/document_stage.lua"),
            Self::DocumentCommit => include_str!("scripts/document_commit.lua"),
            Self::DocumentDiscard => include_str!("scripts/document_discard.lua"),
        }
    }
}

impl Scripts {
    pub(crate) fn new(time: TimeSource) -> Self {
        let time = match time {
            TimeSource::Server => include_str!("scripts/time.lua"),
            TimeSource::Simulated => include_str!("scripts/simulated_time.lua"),
        };
        Self(ScriptName::ALL.map(|name| {
            let plain = match name {
                ScriptName::Reserve => include_str!("scripts/reserve_plain.lua"),
                ScriptName::Complete => include_str!("scripts/complete_plain.lua"),
                _ => "",
            };
            let text = with_includes(&match name.is_of_document() {
                true => format!("{DOCUMENT_PRELUDE}\n{}", name.text()),
                false => format!("{time}\n{plain}\n{PRELUDE}\n{}", name.text()),
            });
            let sha = Script::new(&text).get_hash().to_owned();
            LoadedScript { text, sha }
        }))
    }

    pub(crate) fn get(&self, name: ScriptName) -> &LoadedScript {
        &self.0[name as usize]
    }
}

fn with_includes(text: &str) -> String {
    let mut whole = String::new();
    for line in text.lines() {
        match line.trim().strip_prefix("--@ ") {
            Some(name) => {
                let found = INCLUDES.iter().find(|(included, _)| *included == name);
                let (_, text) = found.expect("a script includes files that exist");
                whole.push_str(&with_includes(text));
            }
            None => whole.push_str(line),
        }
        whole.push('\n');
    }
    whole
}
