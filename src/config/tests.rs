//! Error texts and defaults.

use super::Config;

#[test]
fn the_shortest_file_is_the_minimal_configuration_with_its_pools() {
    let config = Config::load("version: 1\npools: [{provider: host}]", "x").unwrap();
    assert_eq!(Config { pools: config.pools.clone(), ..Config::minimal() }, config);
}
