//! Where a call can be made (`GW-08`): its model at the provider of its path, or at one of several deployments.

use std::borrow::Cow;
use std::sync::Arc;

use hyper::{HeaderMap, Uri};

use crate::attempt::CallContext;
use crate::estimate::Certain;
use crate::limits::ScopeKeys;
use crate::settings::{Deployment, Model};
use crate::shared::ProviderContext;

/// A model at a provider, where a call can be made.
#[derive(Debug)]
pub(crate) struct Destination {
    pub(crate) context: Arc<CallContext>,
    pub(crate) certain: Certain,
    pub(crate) keys: Arc<ScopeKeys>,
    pub(crate) uri: Uri,
    pub(crate) headers: HeaderMap,
    /// The call is made with the gateway's key of the provider.
    pub(crate) has_api_key: bool,
    /// In place of the caller's model.
    pub(crate) model: Option<Box<str>>,
    pub(crate) weight: u32,
}

/// A model at a provider that stands for the one that the caller named.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Place<'a> {
    /// The provider's position.
    pub(crate) provider: usize,
    /// As the provider gets it.
    pub(crate) model: &'a str,
    /// Its position in the provider's list.
    pub(crate) listed: Option<usize>,
    /// What is known of it.
    pub(crate) settings: Option<Cow<'a, Model>>,
    /// `None` if it is the model that the caller named.
    pub(crate) weight: Option<u32>,
}

/// Where a call of a model at a provider can be made. `named` is the model's position in the provider's list.
pub(crate) fn places<'a>(
    providers: &'a [ProviderContext],
    provider: usize,
    model: &'a str,
    named: Option<usize>,
) -> Vec<Place<'a>> {
    let settings = named.map(|at| &providers[provider].settings.listed()[at]);
    let deployments = settings.map_or(&[][..], |model| &model.deployments);
    if deployments.is_empty() {
        let settings = settings.map(Cow::Borrowed);
        return vec![Place { provider, model, listed: named, settings, weight: None }];
    }
    let place = |deployment: &'a Deployment| {
        let mut all = providers.iter();
        let provider = all.position(|other| other.settings.name.as_str() == deployment.provider);
        let provider = provider.expect("the settings were checked");
        let models = providers[provider].settings.listed();
        let listed = models.iter().position(|model| model.name == deployment.model);
        Place {
            provider,
            model: &deployment.model,
            listed,
            settings: settings
                .map(|named| Cow::Owned(deployed(named, listed.map(|at| &models[at])))),
            weight: Some(deployment.weight),
        }
    };
    deployments.iter().map(place).collect()
}

/// What is known of a model that stands for the one that was `named`: what is not set where it is `listed` is as there.
fn deployed(named: &Model, listed: Option<&Model>) -> Model {
    let of_listed = |field: fn(&Model) -> Option<u64>| listed.and_then(field).or(field(named));
    let price = listed.and_then(|model| model.price.as_ref());
    Model {
        name: named.name.clone(),
        default_output_tokens: of_listed(|model| model.default_output_tokens),
        max_output_tokens: of_listed(|model| model.max_output_tokens),
        price: price.or(named.price.as_ref()).cloned(),
        ..Model::default()
    }
}

/// All of `weights` by their position, in a random order in which heavier ones tend to be earlier.
pub(crate) fn shuffled(weights: impl Iterator<Item = u32>) -> Vec<usize> {
    let mut order: Vec<_> = weights
        .enumerate()
        .map(|(at, weight)| {
            // The order of exponential times with these rates is that of draws without return.
            let time = -(1.0 - fastrand::f64()).ln() / f64::from(weight);
            (at, time)
        })
        .collect();
    order.sort_by(|(_, one), (_, other)| one.total_cmp(other));
    order.into_iter().map(|(at, _)| at).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// GW-08
    #[test]
    fn gw_08_what_a_deployments_model_does_not_set_is_as_the_named_one() {
        let model = |default_output_tokens, max_output_tokens| Model {
            name: "m".to_owned(),
            default_output_tokens,
            max_output_tokens,
            ..Model::default()
        };
        let bounds = |listed: Option<Model>| {
            let merged = deployed(&model(Some(77), Some(1_000)), listed.as_ref());
            (merged.default_output_tokens, merged.max_output_tokens)
        };
        assert_eq!(bounds(None), (Some(77), Some(1_000)));
        assert_eq!(bounds(Some(model(None, None))), (Some(77), Some(1_000)));
        assert_eq!(bounds(Some(model(None, Some(500)))), (Some(77), Some(500)));
    }

    /// GW-08
    #[test]
    fn gw_08_heavier_deployments_are_first_more_often() {
        let mut firsts = [0_u32; 3];
        for _ in 0..10_000 {
            let order = shuffled([1, 3, 6].into_iter());
            firsts[order[0]] += 1;
            assert_eq!(order.iter().sum::<usize>(), 3, "each is there once: {order:?}");
        }
        // Far beyond what chance does in 10 000 draws.
        for (count, expected) in firsts.into_iter().zip([1_000, 3_000, 6_000]) {
            assert!(count.abs_diff(expected) < 500, "{firsts:?}");
        }
    }
}
