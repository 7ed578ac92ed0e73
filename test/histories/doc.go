// Package histories tests package pool by random histories: users, a kubelet and the
// garbage collector move a small world at random, and between their moves a controller
// plans, on what the API server holds or on what it held some time ago, and carries its
// plan out, with answers lost and writes refused. The API server is modelled, with the
// conditions on writes that the controller relies on: the tests in a hand-out's patch,
// the preconditions of a delete, the write-once status.pod. After each write the
// invariants of the project are judged, by code that shares nothing with package pool.
//
// What is not modelled: the order in which watches deliver (any mixture of old and new
// is served, which is more than a real cache can show), other controllers' Pods, and
// owners that foreigners add.
//
// The seed of a failure is printed; run it again with the flags that are printed with
// it. -rapid.checks is the number of histories, -rapid.steps their average length.
package histories
