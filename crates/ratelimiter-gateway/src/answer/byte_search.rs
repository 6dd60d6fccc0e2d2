//! Looks for a byte in text.

/// Small enough that the compiler compares a block at once.
const BLOCK_BYTES: usize = 32;

/// Where the first byte is that is wanted.
pub(super) fn position(bytes: &[u8], is_wanted: impl Fn(u8) -> bool) -> Option<usize> {
    // Without an early exit within a block, so that it becomes vector instructions.
    let has_wanted =
        |block: &&[u8]| block.iter().fold(false, |has_any, byte| has_any | is_wanted(*byte));
    let blocks = bytes.chunks_exact(BLOCK_BYTES);
    let skipped = blocks.take_while(|block| !has_wanted(block)).count() * BLOCK_BYTES;
    let at = bytes[skipped..].iter().position(|byte| is_wanted(*byte))?;
    Some(skipped + at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_is_found_wherever_it_is() {
        for len in 0..3 * BLOCK_BYTES {
            let mut bytes = vec![b'a'; len];
            assert_eq!(position(&bytes, |byte| byte == b'b'), None);
            for at in (0..len).rev() {
                bytes[at] = b'b';
                assert_eq!(position(&bytes, |byte| byte == b'b'), Some(at));
            }
        }
    }
}
