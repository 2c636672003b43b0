//! Circles of a graph, and the order of its nodes with the least that points upward.

use std::collections::BTreeSet;

/// The sets of nodes that reach each other, of two nodes and more, the largest first. `arrows` are pairs of nodes.
pub fn circles(nodes: usize, arrows: &BTreeSet<(usize, usize)>) -> Vec<Vec<usize>> {
    let reach: Vec<BTreeSet<usize>> = (0..nodes).map(|from| reached(from, arrows)).collect();
    let mut done = BTreeSet::new();
    let mut found = Vec::new();
    for node in 0..nodes {
        if !done.insert(node) {
            continue;
        }
        let circle: Vec<usize> = (node..nodes)
            .filter(|other| *other == node || reach[node].contains(other) && reach[*other].contains(&node))
            .collect();
        done.extend(circle.iter().copied());
        if circle.len() > 1 {
            found.push(circle);
        }
    }
    found.sort_by_key(|circle| std::cmp::Reverse(circle.len()));
    found
}

fn reached(from: usize, arrows: &BTreeSet<(usize, usize)>) -> BTreeSet<usize> {
    let mut found = BTreeSet::new();
    let mut ahead = vec![from];
    while let Some(node) = ahead.pop() {
        for (_, to) in arrows.range((node, 0)..=(node, usize::MAX)) {
            if found.insert(*to) {
                ahead.push(*to);
            }
        }
    }
    found
}

/// What points upward in an order that begins with the lowest node.
pub fn upward(order: &[usize], weights: &[Vec<usize>]) -> usize {
    let mut sum = 0;
    for (height, lower) in order.iter().enumerate() {
        sum += order[height + 1..].iter().map(|higher| weights[*lower][*higher]).sum::<usize>();
    }
    sum
}

/// An order, lowest first, in which little points upward: from several starts, nodes move to where they cost least
/// until none gains by it. `weights[a][b]` is what an arrow from `a` to `b` counts.
pub fn best_order(weights: &[Vec<usize>]) -> Vec<usize> {
    let nodes = weights.len();
    let surplus = |node: usize| {
        let given: usize = weights.iter().map(|row| row[node]).sum();
        let taken: usize = weights[node].iter().sum();
        taken as i64 - given as i64
    };
    let mut start: Vec<usize> = (0..nodes).collect();
    start.sort_by_key(|node| surplus(*node));
    let mut best = settle(start.clone(), weights);
    // Always the same pseudo-random starts, so that an answer can be had again.
    let mut seed = 1u64;
    for _ in 0..200 {
        for index in (1..nodes).rev() {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            start.swap(index, (seed >> 33) as usize % (index + 1));
        }
        let other = settle(start.clone(), weights);
        if upward(&other, weights) < upward(&best, weights) {
            best = other;
        }
    }
    best
}

fn settle(mut order: Vec<usize>, weights: &[Vec<usize>]) -> Vec<usize> {
    loop {
        let mut gained = false;
        for from in 0..order.len() {
            // The change of the sum as the node at `from` passes its neighbours, one after the other.
            let node = order[from];
            let (mut least, mut place) = (0i64, from);
            let mut change = 0i64;
            for at in from + 1..order.len() {
                change += weights[order[at]][node] as i64 - weights[node][order[at]] as i64;
                if change < least {
                    (least, place) = (change, at);
                }
            }
            change = 0;
            for at in (0..from).rev() {
                change += weights[node][order[at]] as i64 - weights[order[at]][node] as i64;
                if change < least {
                    (least, place) = (change, at);
                }
            }
            if place != from {
                let node = order.remove(from);
                order.insert(place, node);
                gained = true;
            }
        }
        if !gained {
            return order;
        }
    }
}
