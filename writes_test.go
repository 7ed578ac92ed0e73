package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
)

func TestAtMostSixteenRequestsAreUnderWayAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var current, most int
		calls := make([]int, 50)
		begun := time.Now()
		inParallel(50, func(i int) {
			mu.Lock()
			current++
			most = max(most, current)
			calls[i]++
			mu.Unlock()
			<-time.After(time.Second)
			mu.Lock()
			current--
			mu.Unlock()
		})
		if most != 16 {
			t.Errorf("got %d at once, want 16", most)
		}
		if want := slices.Repeat([]int{1}, 50); !slices.Equal(calls, want) {
			t.Errorf("got calls %v, want one for each", calls)
		}
		if got := time.Since(begun); got != 4*time.Second {
			t.Errorf("50 requests of a second each took %s, want 4s", got)
		}
	})
}

func TestInParallelOfNothingReturns(t *testing.T) {
	inParallel(0, func(int) { t.Error("called") })
}

func TestAPanicInParallelReachesTheCallerOnceAllAreDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		done := 0
		defer func() {
			cause := fmt.Sprint(recover())
			if !strings.HasPrefix(cause, "a bug in 3\n") || !strings.Contains(cause, "writes_test.go") {
				t.Errorf("got panic %q, want the first one's cause and its stack", cause)
			}
			if done != 39 {
				t.Errorf("got %d calls that were done, want 39", done)
			}
		}()
		inParallel(40, func(i int) {
			if i == 3 {
				panic(fmt.Sprint("a bug in ", i))
			}
			<-time.After(time.Second)
			mu.Lock()
			defer mu.Unlock()
			done++
		})
	})
}

func TestSlowStart(t *testing.T) {
	for _, test := range []struct {
		name    string
		n       int
		refused []int
		want    []int // how many calls each batch has
	}{
		{"nothing to do", 0, nil, nil},
		{"one", 1, nil, []int{1}},
		{"the last batch is what is left", 10, nil, []int{1, 2, 4, 3}},
		{"batches double", 31, nil, []int{1, 2, 4, 8, 16}},
		{"a refusal of the first costs one request", 1000, []int{0}, []int{1}},
		{"a refusal lets its own batch end, and is the last", 1000, []int{4}, []int{1, 2, 4}},
		{"so do several", 1000, []int{1, 2}, []int{1, 2}},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var mu sync.Mutex
				called := map[int]int{}
				batches := map[time.Duration]int{} // by the time at which it began
				begun := time.Now()
				slowStart(test.n, func(i int) bool {
					mu.Lock()
					called[i]++
					batches[time.Since(begun)]++
					mu.Unlock()
					<-time.After(time.Second)
					return !slices.Contains(test.refused, i)
				})
				var got []int
				for second := range len(batches) {
					got = append(got, batches[time.Duration(second)*time.Second])
				}
				if !slices.Equal(got, test.want) {
					t.Errorf("got batches of %v, want %v", got, test.want)
				}
				for i := range len(called) {
					if called[i] != 1 {
						t.Errorf("number %d was called %d times, want once", i, called[i])
					}
				}
			})
		})
	}
}

// policyViolated is what the API server answers when a ValidatingAdmissionPolicy
// denies a request (k8s.io/apiserver, plugin/policy/validating).
func policyViolated(name string) error {
	err := apierrors.NewForbidden(podResource.GroupResource(), name, errors.New("ValidatingAdmissionPolicy 'labels' denied request: label team is missing"))
	err.ErrStatus.Reason, err.ErrStatus.Code = metav1.StatusReasonInvalid, http.StatusUnprocessableEntity
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{Message: "label team is missing"}}
	return err
}

// webhookSays is what the API server answers when a webhook denies a request with a
// status of its own (k8s.io/apiserver, plugin/webhook/errors).
func webhookSays(code int32, reason metav1.StatusReason) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: code, Reason: reason,
		Message: `admission webhook "labels" denied the request: label team is missing`,
	}}
}

func TestKindsOfRefusals(t *testing.T) {
	pods := podResource.GroupResource()
	for _, test := range []struct {
		name       string
		err        error
		testFailed bool
		refusal    bool
	}{
		{"no error", nil, false, false},
		{"a test of the patch failed", testFailed(errors.New("testing value /metadata/uid failed")), true, true},
		{"a Pod that isn't valid", invalidLabel("a"), false, true},
		{"an admission policy", policyViolated("a"), false, true},
		{"a webhook that answers 422", webhookSays(422, metav1.StatusReasonInvalid), false, true},
		{"a webhook that answers 403", webhookSays(403, metav1.StatusReasonForbidden), false, true},
		{"a webhook that answers 400", webhookSays(400, metav1.StatusReasonBadRequest), false, true},
		{"forbidden", apierrors.NewForbidden(pods, "a", errors.New("no")), false, true},
		{"conflict", apierrors.NewConflict(pods, "a", errors.New("changed")), false, false},
		{"not found", apierrors.NewNotFound(pods, "a"), false, false},
		{"too many requests", apierrors.NewTooManyRequests("slow down", 1), false, false},
		{"internal error", apierrors.NewInternalError(errors.New("etcd")), false, false},
		{"no answer", errors.New("connection reset by peer"), false, false},
	} {
		for _, wrapped := range []bool{false, true} {
			err := test.err
			if wrapped && err != nil {
				err = fmt.Errorf("hand out pod ci/a: %w", err)
			}
			if got := isTestFailed(err); got != test.testFailed {
				t.Errorf("%s (wrapped: %t): isTestFailed is %t, want %t", test.name, wrapped, got, test.testFailed)
			}
			if got := isRefusal(err); got != test.refusal {
				t.Errorf("%s (wrapped: %t): isRefusal is %t, want %t", test.name, wrapped, got, test.refusal)
			}
		}
	}
}

// TestAFailedTestIsKnownAcrossTheWire is the way of the errors above through the client,
// which makes its own error of an answer, and adds to it or leaves out what it likes.
func TestAFailedTestIsKnownAcrossTheWire(t *testing.T) {
	for _, test := range []struct {
		name string
		err  error
		want bool
	}{
		{"a test of the patch failed", testFailed(errors.New("testing value /metadata/uid failed")), true},
		{"a Pod that isn't valid", invalidLabel("a"), false},
		{"an admission policy", policyViolated("a"), false},
		{"a webhook that answers 422", webhookSays(422, metav1.StatusReasonInvalid), false},
	} {
		t.Run(test.name, func(t *testing.T) {
			var status apierrors.APIStatus
			if !errors.As(test.err, &status) {
				t.Fatalf("%v has no status", test.err)
			}
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				answer := status.Status()
				answer.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(int(answer.Code))
				if err := json.NewEncoder(w).Encode(answer); err != nil {
					t.Error(err)
				}
			}))
			defer server.Close()
			client, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL})
			if err != nil {
				t.Fatal(err)
			}
			_, err = client.CoreV1().Pods("ci").Patch(t.Context(), "a", types.JSONPatchType, []byte(`[]`), metav1.PatchOptions{})
			if got := isTestFailed(err); got != test.want {
				t.Errorf("isTestFailed(%#v) is %t, want %t", err, got, test.want)
			}
		})
	}
}

func TestConflictsAreReportedOnlyIfNothingWorseHappened(t *testing.T) {
	conflict := apierrors.NewConflict(podResource.GroupResource(), "a", errors.New("changed"))
	pod := aPod("a")
	failure := errors.New("etcd has no leader")

	var none results
	if err := none.err(); err != nil {
		t.Errorf("got %v of no error", err)
	}
	var conflicts results
	conflicts.conflict("delete pod", klog.KObj(pod), conflict)
	if err := conflicts.err(); !errors.Is(err, errConflict) || !strings.HasPrefix(err.Error(), "delete pod ci/a: ") {
		t.Errorf("got %v, want an errConflict that names the write and the Pod", err)
	}
	var both results
	both.conflict("delete pod", klog.KObj(pod), conflict)
	both.failed(failure)
	if err := both.err(); errors.Is(err, errConflict) || !errors.Is(err, failure) {
		t.Errorf("got %v, want the failure alone", err)
	}
}

func TestAClaimIsToldOfItsPodOnlyOnceItHasIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, aPool("runners", replicas(0)), aPod("a", ready), aClaim("job"))
		f.sync(t)
		expect(t, "requests in their order", f.api.sentInOrder(), []string{
			"patch pods a",
			"update podclaims/status job",
			"update warmpools/status runners",
		})
	})
}
