//! stub
/// stub
#[derive(Clone, Copy, Debug, Default)]
pub struct CoordinationWorld;
