//! A denial in an answer: of a reserve and of a renew.

use ratelimiter::{DenialReason, LimitKey};

use crate::error_code::ErrorCode;

/// The fields of an answer that say why it is a denial.
#[derive(Debug)]
pub(crate) struct DenialFields {
    pub(crate) denied_keys: Vec<LimitKey>,
    pub(crate) error: Option<ErrorCode>,
    pub(crate) message: Option<String>,
}

impl From<DenialReason> for DenialFields {
    fn from(reason: DenialReason) -> Self {
        let (message, code) = match reason {
            DenialReason::NoRoom { keys } => {
                return Self { denied_keys: keys, error: None, message: None };
            }
            DenialReason::Paused { key } => (
                format!("{key} is paused (capacity 0); nothing is admitted until it is raised"),
                ErrorCode::LimitPaused { key },
            ),
            DenialReason::Decreasing { key } => (
                format!(
                    "the capacity of {key} is being lowered; nothing is admitted until it applies"
                ),
                ErrorCode::LimitDecreasing { key },
            ),
            DenialReason::TooManyWaiters { keys } => {
                let message = "too many requests wait already; see server.waiters_max".to_owned();
                let error = Some(ErrorCode::TooManyWaiters);
                return Self { denied_keys: keys, error, message: Some(message) };
            }
            DenialReason::TooManyInstances { template } => (
                format!(
                    "too many limits are made from templates, such as {template}; see registry.instances_max and registry.new_instances_per_second_max"
                ),
                ErrorCode::TooManyInstances { template },
            ),
        };
        Self { denied_keys: Vec::new(), error: Some(code), message: Some(message) }
    }
}

/// The inverse.
///
/// # Errors
/// The code does not say that something was denied.
pub(crate) fn denial_reason(
    error: Option<ErrorCode>,
    denied_keys: Vec<LimitKey>,
) -> Result<DenialReason, ErrorCode> {
    match error {
        None => Ok(DenialReason::NoRoom { keys: denied_keys }),
        Some(ErrorCode::LimitPaused { key }) => Ok(DenialReason::Paused { key }),
        Some(ErrorCode::LimitDecreasing { key }) => Ok(DenialReason::Decreasing { key }),
        Some(ErrorCode::TooManyInstances { template }) => {
            Ok(DenialReason::TooManyInstances { template })
        }
        Some(ErrorCode::TooManyWaiters) => Ok(DenialReason::TooManyWaiters { keys: denied_keys }),
        Some(code) => Err(code),
    }
}
