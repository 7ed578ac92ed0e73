package main

import (
	"testing"
	"time"

	"warmpool.dev/controller/hack/controlplane"
)

func TestClaimsTableShowsThePodAndTheLatency(t *testing.T) {
	asked := time.Unix(1000, 0)
	got := claimsTable([]*claim{
		{name: "build-1", pod: "runners-x", asked: asked, bound: asked.Add(8123 * time.Microsecond)},
		{name: "build-2", pod: "runners-longer", asked: asked, bound: asked.Add(112 * time.Millisecond)},
	})
	want := `  CLAIM    POD             CREATED TO BOUND
  build-1  runners-x                 8.1 ms
  build-2  runners-longer          112.0 ms`
	if got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

func TestWritesTableCountsByVerbAndResource(t *testing.T) {
	filling := []controlplane.Write{
		write("update", "warmpools", "status"), write("create", "pods", ""), write("create", "pods", ""),
		refusedWrite("update", "warmpools", "status"),
	}
	claiming := []controlplane.Write{write("patch", "pods", ""), write("create", "pods", ""), write("update", "warmpools", "status")}
	for _, test := range []struct {
		name    string
		resting []controlplane.Write
		want    string
	}{
		{"nothing at rest", nil, `  VERB    RESOURCE          FILLING  CLAIMS  TOTAL  REFUSED
  create  pods                    2       1      3        0
  patch   pods                    0       1      1        0
  update  warmpools/status        2       1      3        1
          all                     4       3      7        1`},
		{"a write at rest", []controlplane.Write{write("update", "podclaims", "status")}, `  VERB    RESOURCE          FILLING  CLAIMS  AT REST  TOTAL  REFUSED
  update  podclaims/status        0       0        1      1        0
  create  pods                    2       1        0      3        0
  patch   pods                    0       1        0      1        0
  update  warmpools/status        2       1        0      3        1
          all                     4       3        1      8        1`},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := writesTable(filling, claiming, test.resting); got != test.want {
				t.Errorf("got:\n%s\nwant:\n%s", got, test.want)
			}
		})
	}
}

func TestCostTableNamesWhatNoClaimAsksForOnlyIfItHappened(t *testing.T) {
	for _, test := range []struct {
		name string
		cost cost
		want string
	}{
		{"as promised", cost{handOuts: 3, claimStatuses: 3, created: 3, poolStatuses: 4, events: 5}, `  WRITES                               NUMBER  PER CLAIM
  Pods patched: the hand-outs               3        1.0
  claim statuses                            3        1.0
  Pods created: the refill                  3        1.0
  the claims' own, together                 9        3.0
  pool statuses, shared by all claims       4        1.3
  events                                    5        1.7`},
		{"too much", cost{handOuts: 3, claimStatuses: 3, created: 4, deleted: 1, others: 2}, `  WRITES                               NUMBER  PER CLAIM
  Pods patched: the hand-outs               3        1.0
  claim statuses                            3        1.0
  Pods created: the refill                  4        1.3
  Pods deleted: too many were created       1        0.3
  others                                    2        0.7
  the claims' own, together                13        4.3
  pool statuses, shared by all claims       0        0.0
  events                                    0        0.0`},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := costTable(test.cost, 3); got != test.want {
				t.Errorf("got:\n%s\nwant:\n%s", got, test.want)
			}
		})
	}
}
