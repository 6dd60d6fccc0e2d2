//! The flawed outbox and inbox.

use std::time::Duration;

use coordination::{
    BatchSize, ContentHash, Delay, Enqueued, ErrorText, GetError, Inbox, InboxKey, InboxMessage,
    JoinError, JoinId, JoinProgress, Joins, LeaseDuration, MessageId, NewInboxMessage, NewJoin,
    NewOutboxMessage, Outbox, OutboxMessage, OutboxRecord, OutboxStatus, OwnerToken, Processed,
    Result, Retention, Settlement, SourceMessageId, TopicSet, Topics,
};

use crate::flawed::{Flaw, Flawed};

impl Outbox for Flawed {
    async fn enqueue(&self, mut message: NewOutboxMessage) -> Result<MessageId> {
        if self.has(Flaw::IgnoresDueTimes) {
            message.due_at = None;
        }
        message.due_at = self.due_at(message.due_at);
        self.notes().enqueued.insert(message.id, message.clone());
        Outbox::enqueue(&self.inner, message).await
    }

    async fn claim_due_of(
        &self,
        owner: &OwnerToken,
        lease: LeaseDuration,
        max: BatchSize,
        topics: &Topics,
    ) -> Result<Vec<OutboxMessage>> {
        let mut claimed = match (self.flaw, topics) {
            (Flaw::IgnoresTopics, _) => self.inner.claim_due(owner, lease, max).await?,
            (Flaw::ClaimsTopicByTopic, Topics::Only(topics)) => {
                let mut claimed = Vec::new();
                for topic in topics.iter() {
                    let one = Topics::Only(TopicSet::of([topic.clone()]).expect("one topic"));
                    claimed.extend(self.inner.claim_due_of(owner, lease, max, &one).await?);
                }
                claimed
            }
            (_, topics) => self.inner.claim_due_of(owner, lease, max, topics).await?,
        };
        self.note_claim(owner, claimed.iter().map(|message| message.id.to_string()));
        match self.flaw {
            Flaw::ClaimsNewestFirst => claimed.reverse(),
            Flaw::ForgetsRetries => claimed.iter_mut().for_each(|message| message.retry_count = 0),
            Flaw::HandsOutTwice => {
                let again = std::mem::replace(&mut self.notes().claimed, claimed.clone());
                claimed.extend(again);
            }
            _ => {}
        }
        Ok(claimed)
    }

    async fn begin(
        &self,
        owner: &OwnerToken,
        id: MessageId,
        lease: LeaseDuration,
    ) -> Result<Option<u32>> {
        let attempts = Outbox::begin(&self.inner, owner, id, lease).await?;
        if self.has(Flaw::CountsEveryBegin) && attempts.is_some() {
            self.notes().begun += 1;
            return Ok(Some(self.notes().begun));
        }
        Ok(attempts)
    }

    async fn extend(
        &self,
        owner: &OwnerToken,
        ids: &[MessageId],
        lease: LeaseDuration,
    ) -> Result<usize> {
        match self.flaw {
            Flaw::ExtendsInWordsOnly => Ok(ids.len()),
            _ => self.inner.extend(owner, ids, lease).await,
        }
    }

    async fn settle(
        &self,
        owner: &OwnerToken,
        ids: &[MessageId],
        settlement: &Settlement,
    ) -> Result<usize> {
        let flawed = match settlement {
            Settlement::Fail { .. } if self.has(Flaw::FailsInWordsOnly) => Settlement::DONE,
            settlement => self.flawed(settlement),
        };
        let mut count = 0;
        for id in ids {
            let owner = self.owner_settling(owner, settlement, &id.to_string());
            let changed = Outbox::settle(&self.inner, &owner, &[*id], &flawed).await?;
            if *settlement == Settlement::DONE {
                self.notes().calls += 1;
                self.notes().finished.extend((changed == 1).then_some(*id));
            }
            count += changed;
        }
        Ok(count)
    }

    async fn dead(&self, after: Option<MessageId>, max: BatchSize) -> Result<Vec<OutboxRecord>> {
        Outbox::dead(&self.inner, after, max).await
    }

    async fn revive(&self, ids: &[MessageId], reason: &ErrorText, delay: Delay) -> Result<usize> {
        Outbox::revive(&self.inner, ids, reason, delay).await
    }

    async fn record(&self, id: MessageId) -> Result<Option<OutboxRecord>> {
        let record = self.inner.record(id).await?;
        Ok(match record {
            Some(record) if self.has(Flaw::ShowsTheDeadAsReady) => {
                let status = match record.status {
                    OutboxStatus::Dead => OutboxStatus::Ready,
                    status => status,
                };
                Some(OutboxRecord { status, ..record })
            }
            record => record,
        })
    }

    async fn next_due_after(&self, topics: &Topics) -> Result<Option<Duration>> {
        match self.flaw {
            Flaw::IgnoresTopics => self.inner.next_due_after(&Topics::All).await,
            _ => self.inner.next_due_after(topics).await,
        }
    }

    async fn reap(&self) -> Result<usize> {
        match self.flaw {
            Flaw::NeverReaps => Ok(0),
            Flaw::ReapsFinishedMessages => {
                let finished = std::mem::take(&mut self.notes().finished);
                for id in finished {
                    let again = self.notes().enqueued[&id].clone().with_id(MessageId::random());
                    Outbox::enqueue(&self.inner, again).await?;
                }
                Outbox::reap(&self.inner).await
            }
            _ => Outbox::reap(&self.inner).await,
        }
    }

    async fn purge(&self, topics: &Topics, keep: Retention) -> Result<usize> {
        let (topics, keep) = self.purged(topics, keep);
        Outbox::purge(&self.inner, &topics, keep).await
    }

    async fn oldest_ready_age(&self) -> Result<Option<Duration>> {
        Outbox::oldest_ready_age(&self.inner).await
    }
}

impl Joins for Flawed {
    async fn start_join(&self, join: NewJoin) -> Result<JoinId> {
        self.inner.start_join(join).await
    }

    async fn join_progress(&self, id: JoinId) -> Result<JoinProgress, JoinError> {
        let mut progress = self.inner.join_progress(id).await?;
        if self.has(Flaw::CountsJoinsByCalls) {
            progress.completed = self.notes().calls;
        }
        Ok(progress)
    }
}

impl Inbox for Flawed {
    async fn already_processed(
        &self,
        key: &InboxKey,
        hash: Option<&ContentHash>,
    ) -> Result<Processed> {
        self.inner.already_processed(key, hash).await
    }

    async fn enqueue(&self, mut message: NewInboxMessage) -> Result<Enqueued> {
        if self.has(Flaw::DeliversDuplicates) && self.inner.get(&message.key).await.is_ok() {
            self.notes().copies += 1;
            let copy = format!("{}-copy-{}", message.key.message_id, self.notes().copies);
            message.key.message_id = SourceMessageId::new(copy).expect("a valid ID");
        }
        if self.has(Flaw::IgnoresDueTimes) {
            message.due_at = None;
        }
        message.due_at = self.due_at(message.due_at);
        Inbox::enqueue(&self.inner, message).await
    }

    async fn claim_of(
        &self,
        owner: &OwnerToken,
        lease: LeaseDuration,
        max: BatchSize,
        topics: &Topics,
    ) -> Result<Vec<InboxMessage>> {
        let topics = if self.has(Flaw::IgnoresTopics) { &Topics::All } else { topics };
        let mut claimed = self.inner.claim_of(owner, lease, max, topics).await?;
        self.note_claim(owner, claimed.iter().map(|message| message.key.to_string()));
        for message in &mut claimed {
            match self.flaw {
                Flaw::BeginsWhatItHandsOut => {
                    let begun = Inbox::begin(&self.inner, owner, &message.key, lease).await?;
                    message.attempts = begun.expect("it was just claimed");
                }
                Flaw::ForgetsLostAttempts => message.lost_attempts = 0,
                _ => {}
            }
        }
        Ok(claimed)
    }

    async fn begin(
        &self,
        owner: &OwnerToken,
        key: &InboxKey,
        lease: LeaseDuration,
    ) -> Result<Option<u32>> {
        let attempts = Inbox::begin(&self.inner, owner, key, lease).await?;
        if self.has(Flaw::CountsEveryBegin) && attempts.is_some() {
            self.notes().begun += 1;
            return Ok(Some(self.notes().begun));
        }
        Ok(attempts)
    }

    async fn settle(
        &self,
        owner: &OwnerToken,
        keys: &[InboxKey],
        settlement: &Settlement,
    ) -> Result<usize> {
        let flawed = self.flawed(settlement);
        let mut count = 0;
        for key in keys {
            let owner = self.owner_settling(owner, settlement, &key.to_string());
            count += Inbox::settle(&self.inner, &owner, std::slice::from_ref(key), &flawed).await?;
        }
        Ok(count)
    }

    async fn get(&self, key: &InboxKey) -> Result<InboxMessage, GetError> {
        self.inner.get(key).await
    }

    async fn revive(&self, keys: &[InboxKey], reason: &ErrorText, delay: Delay) -> Result<usize> {
        Inbox::revive(&self.inner, keys, reason, delay).await
    }

    async fn reap(&self) -> Result<usize> {
        if self.has(Flaw::NeverReaps) { Ok(0) } else { Inbox::reap(&self.inner).await }
    }

    async fn purge(&self, topics: &Topics, keep: Retention) -> Result<usize> {
        let (topics, keep) = self.purged(topics, keep);
        Inbox::purge(&self.inner, &topics, keep).await
    }

    async fn oldest_ready_age(&self) -> Result<Option<Duration>> {
        Inbox::oldest_ready_age(&self.inner).await
    }
}

impl Flawed {
    /// What a settlement becomes.
    fn flawed(&self, settlement: &Settlement) -> Settlement {
        match (self.flaw, settlement) {
            (Flaw::ForgetsOutcomes, Settlement::Finish { .. }) => Settlement::DONE,
            (Flaw::CountsPostponements, Settlement::Postpone { delay, reason }) => {
                Settlement::Retry { delay: *delay, error: reason.clone() }
            }
            (_, settlement) => settlement.clone(),
        }
    }

    /// The owner that a settlement is done for.
    fn owner_settling(&self, owner: &OwnerToken, settlement: &Settlement, id: &str) -> OwnerToken {
        match settlement {
            Settlement::Finish { .. } => self.owner_for(owner, id),
            Settlement::Fail { .. } => self.owner_of_failure(owner, id),
            Settlement::Retry { .. } | Settlement::Postpone { .. } => owner.clone(),
        }
    }

    /// What a purge is about.
    fn purged(&self, topics: &Topics, keep: Retention) -> (Topics, Retention) {
        match self.flaw {
            Flaw::PurgesForOthers => (Topics::All, keep),
            Flaw::PurgesTheDeadEarly => (topics.clone(), Retention::of_all(keep.done)),
            _ => (topics.clone(), keep),
        }
    }
}
