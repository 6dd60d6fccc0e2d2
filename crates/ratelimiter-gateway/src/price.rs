//! What tokens cost.

use crate::usage::Usage;

/// Prices are kept in millionths of a micro-dollar: a dollar for a million tokens is a micro-dollar for one.
const PER_MICRO_DOLLAR: u128 = 1_000_000;
/// The highest price of a million tokens, in dollars, and of one call of a tool.
pub const PRICE_MAX: f64 = 1_000_000.0;

/// The price of a model's tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Price {
    base: Rates,
    /// Sorted by their threshold.
    tiers: Vec<Tier>,
    /// Millionths of a micro-dollar for one call of a tool that the provider runs.
    server_tool_call: u64,
}

/// Prices of one token, in millionths of a micro-dollar.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Rates {
    input: u64,
    cached_input: u64,
    cache_write: u64,
    cache_write_1h: u64,
    output: u64,
}

/// The prices of calls with much input.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Tier {
    above_input_tokens: u64,
    rates: Rates,
}

/// Prices as a config has them: dollars for a million tokens.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct ListPrice {
    /// Input.
    pub input: f64,
    /// Input read from the cache; as `input` if absent.
    pub cached_input: Option<f64>,
    /// Input written to the cache; as `input` if absent.
    pub cache_write: Option<f64>,
    /// Input written to the cache for an hour; as `cache_write` if absent.
    pub cache_write_1h: Option<f64>,
    /// Output.
    pub output: f64,
}

/// A price is negative, above [`PRICE_MAX`], or not a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("must be 0 to {PRICE_MAX} dollars")]
pub struct PriceError;

impl Price {
    /// Checks prices: those of all calls, and those of calls with more input than a threshold. `server_tool_call` is in dollars a call.
    ///
    /// # Errors
    /// A price is out of range.
    pub fn new(
        base: ListPrice,
        tiers: impl IntoIterator<Item = (u64, ListPrice)>,
        server_tool_call: f64,
    ) -> Result<Self, PriceError> {
        let tier = |(above_input_tokens, price)| {
            Rates::new(price).map(|rates| Tier { above_input_tokens, rates })
        };
        let mut tiers = tiers.into_iter().map(tier).collect::<Result<Vec<_>, _>>()?;
        tiers.sort_by_key(|tier| tier.above_input_tokens);
        // A dollar is a million micro-dollars.
        let server_tool_call = millionths(server_tool_call)?.saturating_mul(1_000_000);
        Ok(Self { base: Rates::new(base)?, tiers, server_tool_call })
    }

    /// What a call costs, in micro-dollars, rounded up once.
    pub fn cost(&self, usage: &Usage) -> u64 {
        let rates = self.rates_of(usage.all_input());
        let Usage { input, cache_read, cache_write, cache_write_1h, output, server_tool_calls } =
            *usage;
        rounded_up([
            (input, rates.input),
            (cache_read, rates.cached_input),
            (cache_write, rates.cache_write),
            (cache_write_1h, rates.cache_write_1h),
            (output, rates.output),
            (server_tool_calls, self.server_tool_call),
        ])
    }

    /// The most that a call with so many tokens may cost, whatever of its input is read from a cache or written to one.
    pub fn cost_at_most(&self, input: u64, output: u64) -> u64 {
        let reached = self.tiers.iter().filter(|tier| input > tier.above_input_tokens);
        let costs = std::iter::once(&self.base).chain(reached.map(|tier| &tier.rates));
        let cost = |rates: &Rates| {
            let Rates {
                input: plain,
                cached_input,
                cache_write,
                cache_write_1h,
                output: of_output,
            } = *rates;
            let of_input = plain.max(cached_input).max(cache_write).max(cache_write_1h);
            rounded_up([(input, of_input), (output, of_output)])
        };
        costs.map(cost).max().unwrap_or_default()
    }

    fn rates_of(&self, input: u64) -> &Rates {
        let tier = self.tiers.iter().rev().find(|tier| input > tier.above_input_tokens);
        tier.map_or(&self.base, |tier| &tier.rates)
    }
}

impl Rates {
    fn new(price: ListPrice) -> Result<Self, PriceError> {
        let ListPrice { input, cached_input, cache_write, cache_write_1h, output } = price;
        let cache_write = cache_write.unwrap_or(input);
        Ok(Self {
            input: millionths(input)?,
            cached_input: millionths(cached_input.unwrap_or(input))?,
            cache_write: millionths(cache_write)?,
            cache_write_1h: millionths(cache_write_1h.unwrap_or(cache_write))?,
            output: millionths(output)?,
        })
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the range is checked")]
fn millionths(dollars: f64) -> Result<u64, PriceError> {
    if !(0.0..=PRICE_MAX).contains(&dollars) {
        return Err(PriceError);
    }
    Ok((dollars * 1e6).round() as u64)
}

fn rounded_up<const N: usize>(parts: [(u64, u64); N]) -> u64 {
    let sum: u128 =
        parts.iter().map(|(count, price)| u128::from(*count) * u128::from(*price)).sum();
    u64::try_from(sum.div_ceil(PER_MICRO_DOLLAR)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn price(input: f64, output: f64) -> ListPrice {
        ListPrice { input, output, ..ListPrice::default() }
    }

    /// GW-02
    #[test]
    fn gw_02_a_cost_is_rounded_up_once_a_call() {
        let price = Price::new(price(0.15, 0.60), [], 0.0).unwrap();
        let usage = Usage { input: 1, output: 1, ..Usage::default() };
        assert_eq!(price.cost(&usage), 1, "0.15 and 0.60 micro-dollars are one, not two");
        let usage = Usage { input: 1_000_000, output: 1_000_000, ..Usage::default() };
        assert_eq!(price.cost(&usage), 750_000);
        assert_eq!(price.cost(&Usage::default()), 0);
    }

    #[test]
    fn cached_input_has_a_price_of_its_own() {
        let list = ListPrice {
            input: 3.0,
            cached_input: Some(0.3),
            cache_write: Some(3.75),
            cache_write_1h: Some(6.0),
            output: 15.0,
        };
        let price = Price::new(list, [], 0.01).unwrap();
        let usage = Usage {
            input: 1_000,
            cache_read: 1_000,
            cache_write: 1_000,
            cache_write_1h: 1_000,
            output: 1_000,
            server_tool_calls: 2,
        };
        assert_eq!(price.cost(&usage), 3_000 + 300 + 3_750 + 6_000 + 15_000 + 20_000);
        assert_eq!(price.cost_at_most(1_000, 1_000), 6_000 + 15_000, "all of it may be written");
    }

    #[test]
    fn a_tier_applies_above_its_threshold() {
        let price = Price::new(price(1.0, 2.0), [(200_000, price(2.0, 3.0))], 0.0).unwrap();
        let usage = |input| Usage { input, output: 1, ..Usage::default() };
        assert_eq!(price.cost(&usage(200_000)), 200_002);
        assert_eq!(price.cost(&usage(200_001)), 400_005);
        assert_eq!(price.cost_at_most(200_001, 1), 400_005);
    }

    #[test]
    fn a_price_out_of_range_is_refused() {
        for wrong in [-0.1, f64::NAN, f64::INFINITY, 1_000_001.0] {
            assert_eq!(Price::new(price(wrong, 0.0), [], 0.0), Err(PriceError));
            assert_eq!(Price::new(price(0.0, 0.0), [], wrong), Err(PriceError));
        }
    }
}
