package main

import (
	"testing"
	"time"

	"warmpool.dev/controller/hack/controlplane"
)

// write builds a write that was accepted.
func write(verb, resource, subresource string) controlplane.Write {
	return controlplane.Write{Verb: verb, Resource: resource, Subresource: subresource, Code: 200}
}

// refusedWrite builds one that met a conflict.
func refusedWrite(verb, resource, subresource string) controlplane.Write {
	w := write(verb, resource, subresource)
	w.Code = 409
	return w
}

func TestLeaseIsKeptApart(t *testing.T) {
	l := sortOut([]controlplane.Write{
		write("create", "leases", ""), write("create", "pods", ""),
		write("update", "leases", ""), write("update", "warmpools", "status"),
	})
	if len(l.product) != 2 || l.product[0].Resource != "pods" || l.product[1].Resource != "warmpools" {
		t.Errorf("product = %v, want the Pod and the pool's status", l.product)
	}
	if len(l.lease) != 2 || l.lease[0].Verb != "create" || l.lease[1].Verb != "update" {
		t.Errorf("lease = %v, want its creation and its update", l.lease)
	}
}

func TestOnlyWritesAfterTheMomentCount(t *testing.T) {
	at := func(seconds int64) controlplane.Write { return controlplane.Write{Time: time.Unix(seconds, 0)} }
	writes := []controlplane.Write{at(1), at(2), at(3)}
	for moment, want := range map[int64]int{0: 3, 1: 2, 2: 1, 3: 0} {
		if got := len(after(writes, time.Unix(moment, 0))); got != want {
			t.Errorf("%d writes after second %d, want %d", got, moment, want)
		}
	}
}

func TestEachWriteIsChargedForWhatItWasFor(t *testing.T) {
	got := costOf([]controlplane.Write{
		write("patch", "pods", ""), refusedWrite("patch", "pods", ""),
		write("update", "podclaims", "status"), write("patch", "podclaims", "status"), write("update", "podclaims", "status"),
		write("create", "pods", ""),
		write("delete", "pods", ""), write("delete", "pods", ""),
		write("update", "podclaims", ""), write("create", "pods", "eviction"),
		write("update", "warmpools", "status"), write("patch", "warmpools", "status"),
		write("create", "events", ""), write("patch", "events", ""), write("create", "events", ""),
	})
	want := cost{handOuts: 2, claimStatuses: 3, created: 1, deleted: 2, others: 2, poolStatuses: 2, events: 3}
	if got != want {
		t.Errorf("costOf() = %+v, want %+v", got, want)
	}
	if got.claims() != 10 {
		t.Errorf("claims() = %d, want 10: all but pool statuses and events", got.claims())
	}
}
