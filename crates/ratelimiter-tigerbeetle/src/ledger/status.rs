//! TigerBeetle's result statuses with their wire numbers.

/// Declares a status enum from one table of names and numbers, so that the two cannot disagree.
macro_rules! statuses {
    ($(#[$meta:meta])* $name:ident { $($(#[$doc:meta])* $variant:ident = $number:literal,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum $name {
            $($(#[$doc])* $variant,)*
            /// A status that our types cannot provoke, with its number.
            Other(u32),
        }

        impl $name {
            /// The status with this wire number.
            pub fn from_number(number: u32) -> Self {
                match number {
                    $($number => Self::$variant,)*
                    other => Self::Other(other),
                }
            }

            /// The wire number.
            pub fn number(self) -> u32 {
                match self {
                    $(Self::$variant => $number,)*
                    Self::Other(number) => number,
                }
            }
        }
    };
}

statuses! {
    /// The result of creating an account.
    AccountStatus {
        /// It was created.
        Created = 0xFFFF_FFFF,
        /// An identical one exists.
        Exists = 21,
        /// The ID is taken by an account with other flags; `closed` is one of them.
        ExistsWithDifferentFlags = 15,
        /// The ID is taken by an account with other user data.
        ExistsWithDifferentUserData128 = 16,
        /// The ID is taken by an account with other user data.
        ExistsWithDifferentUserData64 = 17,
        /// The ID is taken by an account with other user data.
        ExistsWithDifferentUserData32 = 18,
        /// The ID is taken by an account of another ledger.
        ExistsWithDifferentLedger = 19,
        /// The ID is taken by an account with another code.
        ExistsWithDifferentCode = 20,
    }
}

statuses! {
    /// The result of creating a transfer.
    TransferStatus {
        /// It was created.
        Created = 0xFFFF_FFFF,
        /// Another event of its chain was refused.
        LinkedEventFailed = 1,
        /// An identical one exists. It may have been voided or have expired since.
        Exists = 46,
        /// The ID is taken by a transfer with other flags; `linked` is one of them.
        ExistsWithDifferentFlags = 36,
        /// The ID is taken by a void or post of another pending transfer.
        ExistsWithDifferentPendingId = 40,
        /// The ID is taken by a pending transfer with another timeout.
        ExistsWithDifferentTimeout = 44,
        /// The ID is taken by a transfer from another account.
        ExistsWithDifferentDebitAccountId = 37,
        /// The ID is taken by a transfer to another account.
        ExistsWithDifferentCreditAccountId = 38,
        /// The ID is taken by a transfer of another amount.
        ExistsWithDifferentAmount = 39,
        /// The ID is taken by a transfer with other user data.
        ExistsWithDifferentUserData128 = 41,
        /// The ID is taken by a transfer with other user data.
        ExistsWithDifferentUserData64 = 42,
        /// The ID is taken by a transfer with other user data.
        ExistsWithDifferentUserData32 = 43,
        /// The ID is taken by a transfer with another code.
        ExistsWithDifferentCode = 45,
        /// The ID was refused before for a transient reason, and is never accepted again.
        IdAlreadyFailed = 68,
        /// The debit and the credit account are the same.
        AccountsMustBeDifferent = 12,
        /// A void or post of itself.
        PendingIdMustBeDifferent = 16,
        /// The debit account does not exist. The ID is burned.
        DebitAccountNotFound = 21,
        /// The credit account does not exist. The ID is burned.
        CreditAccountNotFound = 22,
        /// The accounts belong to another ledger.
        TransferMustHaveTheSameLedgerAsAccounts = 24,
        /// The pending transfer does not exist. The ID is burned.
        PendingTransferNotFound = 25,
        /// The transfer to void or post never was pending.
        PendingTransferNotPending = 26,
        /// A post of more than is pending.
        ExceedsPendingTransferAmount = 31,
        /// Another transfer has posted it.
        PendingTransferAlreadyPosted = 33,
        /// Another transfer has voided it.
        PendingTransferAlreadyVoided = 34,
        /// Its timeout has passed.
        PendingTransferExpired = 35,
        /// The debit account is closed. The ID is burned.
        DebitAccountAlreadyClosed = 65,
        /// The credit account is closed. The ID is burned.
        CreditAccountAlreadyClosed = 66,
        /// The sum would exceed 2^128-1.
        OverflowsDebitsPending = 47,
        /// The sum would exceed 2^128-1.
        OverflowsCreditsPending = 48,
        /// The sum would exceed 2^128-1.
        OverflowsDebitsPosted = 49,
        /// The sum would exceed 2^128-1.
        OverflowsCreditsPosted = 50,
        /// The sum would exceed 2^128-1.
        OverflowsDebits = 51,
        /// The sum would exceed 2^128-1.
        OverflowsCredits = 52,
        /// The expiry would exceed the largest timestamp.
        OverflowsTimeout = 53,
        /// No room: debits would exceed credits. The ID is burned.
        ExceedsCredits = 54,
    }
}

impl TransferStatus {
    /// Whether a transfer with this ID exists, identical or not.
    pub fn exists(self) -> bool {
        // TigerBeetle numbers its statuses `Exists…` from 36 to 46.
        matches!(self.number(), 36..=46)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_has_one_status_and_comes_back() {
        for number in (0..100).chain([u32::MAX]) {
            assert_eq!(AccountStatus::from_number(number).number(), number);
            assert_eq!(TransferStatus::from_number(number).number(), number);
        }
    }

    #[test]
    fn exists_holds_for_the_statuses_named_exists() {
        for status in (0..100).map(TransferStatus::from_number) {
            assert_eq!(status.exists(), format!("{status:?}").starts_with("Exists"), "{status:?}");
        }
    }

    #[test]
    fn the_numbers_are_those_of_the_client() {
        use tigerbeetle::{CreateAccountStatus as Account, CreateTransferStatus as Transfer};
        let transfer = |status: Transfer| TransferStatus::from_number(status as u32);
        assert_eq!(transfer(Transfer::Created), TransferStatus::Created);
        assert_eq!(transfer(Transfer::ExceedsCredits), TransferStatus::ExceedsCredits);
        assert_eq!(transfer(Transfer::IdAlreadyFailed), TransferStatus::IdAlreadyFailed);
        assert_eq!(transfer(Transfer::Exists), TransferStatus::Exists);
        assert_eq!(transfer(Transfer::LinkedEventChainOpen), TransferStatus::Other(2));
        assert_eq!(AccountStatus::from_number(Account::Exists as u32), AccountStatus::Exists);
    }
}
