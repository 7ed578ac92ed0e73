package main

// What the controller wrote to the API server, counted from the server's audit log,
// so neither by the controller nor by the demo.

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"warmpool.dev/controller/hack/controlplane"
)

// quietFor is how long the controller must have written nothing to have come to rest.
// The API server logs a write some milliseconds after its answer, and events are
// written in the background.
const quietFor = time.Second

// ledger is all that the controller has written, oldest first. The renewals of its
// lease, which go on for ever, are apart from what it does for its users.
type ledger struct {
	product, lease []controlplane.Write
}

// writes reads the ledger of the controller.
func (s *stage) writes() (ledger, error) {
	all, err := s.controlPlane.Writes(controlplane.Controller)
	if err != nil {
		return ledger{}, err
	}
	return sortOut(all), nil
}

// sortOut tells the lease from the rest.
func sortOut(all []controlplane.Write) ledger {
	var l ledger
	for _, w := range all {
		if w.Resource == "leases" {
			l.lease = append(l.lease, w)
		} else {
			l.product = append(l.product, w)
		}
	}
	return l
}

// quiet waits until the controller has come to rest, and returns what it has written
// up to then.
func (s *stage) quiet(ctx context.Context) (ledger, error) {
	var last ledger
	since := s.clock.Now()
	err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, quietDeadline, true, func(context.Context) (bool, error) {
		now, err := s.writes()
		if err != nil {
			return false, err
		}
		if len(now.product) != len(last.product) {
			since = s.clock.Now()
		}
		last = now
		return s.clock.Since(since) >= quietFor, nil
	})
	if err != nil {
		return ledger{}, fmt.Errorf("wait until the controller has written nothing for %s: %w (writes so far: %d)", quietFor, err, len(last.product))
	}
	s.say("the controller has come to rest")
	return last, nil
}

// watchRest lets time pass and returns what has been written by then. It tells how it
// goes every ten seconds.
func (s *stage) watchRest(ctx context.Context, rest time.Duration) (ledger, error) {
	s.chapter(fmt.Sprintf("Nothing happens for %s", rest))
	begun := s.clock.Now()
	ticker := time.NewTicker(min(rest, 10*time.Second))
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return ledger{}, context.Cause(ctx)
		case <-ticker.C:
		}
		now, err := s.writes()
		if err != nil {
			return ledger{}, err
		}
		since := after(now.product, begun)
		s.say("%d writes, and %d of the lease", len(since), len(after(now.lease, begun)))
		if s.clock.Since(begun) >= rest {
			return now, nil
		}
	}
}

// after returns the writes that arrived after a moment.
func after(writes []controlplane.Write, moment time.Time) []controlplane.Write {
	for i, w := range writes {
		if w.Time.After(moment) {
			return writes[i:]
		}
	}
	return nil
}

// cost is what writes were for. A refused write counts like any other: the API server
// had it to answer.
type cost struct {
	handOuts      int // patches of Pods
	claimStatuses int
	created       int // Pods
	deleted       int // Pods, none of which any claim asks for
	others        int // of a kind that isn't known here
	// Shared by all claims, however many.
	poolStatuses int
	events       int
}

// costOf counts what writes were for.
func costOf(writes []controlplane.Write) cost {
	var c cost
	for _, w := range writes {
		switch {
		case w.Resource == "events":
			c.events++
		case w.Resource == "warmpools" && w.Subresource == "status":
			c.poolStatuses++
		case w.Resource == "podclaims" && w.Subresource == "status":
			c.claimStatuses++
		case w.Resource == "pods" && w.Subresource == "" && w.Verb == "create":
			c.created++
		case w.Resource == "pods" && w.Subresource == "" && w.Verb == "patch":
			c.handOuts++
		case w.Resource == "pods" && w.Subresource == "" && w.Verb == "delete":
			c.deleted++
		default:
			c.others++
		}
	}
	return c
}

// claims is the part that claims are charged with one by one.
func (c cost) claims() int {
	return c.handOuts + c.claimStatuses + c.created + c.deleted + c.others
}

// refused counts the writes that the API server didn't accept.
func refused(writes []controlplane.Write) int {
	n := 0
	for _, w := range writes {
		if w.Code >= 400 {
			n++
		}
	}
	return n
}
