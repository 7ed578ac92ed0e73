// Package pool decides what a warm pool needs next. Plan takes a Snapshot of one
// pool, its claims and its Pods, and answers with Actions; it has no client, no
// clock and no logger, so every decision can be tested without a cluster. The
// controller carries the Actions out, and only the API server's conditions (the
// tests in a hand-out's patch, the preconditions of a delete) are proof: a plan
// made from an old snapshot is refused there.
//
// Everything here is a pure function of its arguments and never changes them; all
// of it is safe for concurrent use.
package pool
