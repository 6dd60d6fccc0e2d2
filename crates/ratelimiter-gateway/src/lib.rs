#![doc = include_str!("../README.md")]

mod access;
mod accounts;
mod admission;
mod answer;
mod answer_body;
mod api;
mod attempt;
mod call;
mod caller;
mod credit;
mod destination;
mod dimension;
mod encoding;
mod estimate;
mod foreign_use;
mod gateway;
mod headers;
mod held_back;
mod limiter;
mod limits;
mod metered;
mod model_name;
mod observer;
mod own_rates;
mod passed;
mod prepared;
mod price;
mod proxy_url;
mod rate_figures;
mod ratios;
mod reasoning;
mod refusal;
mod renewals;
mod request_body;
mod retry;
mod route;
mod selection;
mod settings;
mod settle;
mod shared;
mod trial;
mod upstream;
mod usage;

pub use api::{Api, Operation};
pub use caller::Caller;
pub use gateway::{Gateway, GatewayError, GatewayParts};
pub use limiter::GatewayLimiter;
pub use observer::{CallOutcome, CallReport, Observer};
pub use price::{ListPrice, PRICE_MAX, Price, PriceError};
pub use proxy_url::{ProxyUrl, ProxyUrlError};
pub use settings::{
    BaseUrl, BaseUrlError, DEPLOYMENT_WEIGHT_MAX, Deployment, DeploymentError, Model,
    NAME_BYTES_MAX, Name, NameError, OnBackendError, Provider, RESERVED_NAMES, RateCounts, Secret,
    SecretError, Settings, SettingsError, Tenant,
};
pub use upstream::{BoxError, UpstreamError};
pub use usage::Usage;
