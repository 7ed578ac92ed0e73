package main

import (
	"context"
	"flag"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
)

// defaults are the options of an empty command line.
func defaults(t *testing.T, arguments ...string) options {
	t.Helper()
	var o options
	flags := flag.NewFlagSet("warmpool-controller", flag.ContinueOnError)
	o.addFlags(flags)
	if err := flags.Parse(arguments); err != nil {
		t.Fatal(err)
	}
	return o
}

func TestTheDefaultsAreValid(t *testing.T) {
	o := defaults(t)
	if err := o.validate(); err != nil {
		t.Error(err)
	}
}

func TestAnOptionThatCannotBeUsedIsAnErrorThatSaysWhatToDo(t *testing.T) {
	for _, test := range []struct {
		arguments string
		want      string
	}{
		{"--workers=0", "--workers is 0: give at least 1"},
		{"--cache-sync-timeout=0s", "--cache-sync-timeout is 0s: give a positive duration, such as 15s"},
		{"--cache-sync-timeout=-1s", "--cache-sync-timeout is -1s: give a positive duration, such as 15s"},
		{"--kube-api-qps=0", "--kube-api-qps is 0 and --kube-api-burst is 400: give positive numbers"},
		{"--kube-api-burst=0", "--kube-api-qps is 200 and --kube-api-burst is 0: give positive numbers"},
		{"--leader-elect-retry-period=0s", "--leader-elect-retry-period (0s), --leader-elect-renew-deadline (10s) and --leader-elect-lease-duration (15s): give each more than the one before"},
		{"--leader-elect-renew-deadline=2s", "--leader-elect-retry-period (2s), --leader-elect-renew-deadline (2s) and --leader-elect-lease-duration (15s): give each more than the one before"},
		{"--leader-elect-lease-duration=10s", "--leader-elect-retry-period (2s), --leader-elect-renew-deadline (10s) and --leader-elect-lease-duration (10s): give each more than the one before"},
		{"--write-timeout=0s", "--write-timeout is 0s: give a positive duration, such as 5s"},
		{"--write-timeout=11s", "--leader-elect-lease-duration (15s) less --leader-elect-retry-period (2s) has to be more than --write-timeout (11s) and 2s: raise the first, or lower the last"},
		{"--write-timeout=10s", ""},
		{"--leader-elect=false --leader-elect-lease-duration=0s --write-timeout=1m", ""},
	} {
		o := defaults(t, strings.Fields(test.arguments)...)
		var got string
		if err := o.validate(); err != nil {
			got = err.Error()
		}
		if got != test.want {
			t.Errorf("%s: got %q, want %q", test.arguments, got, test.want)
		}
	}
}

func TestRunEndsAtOnceWithAnErrorThatSaysWhatToDo(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	kubeconfig := "--kubeconfig=" + unreachable(t)
	for _, test := range []struct {
		name      string
		arguments []string
		want      []string
	}{
		{"an option can't be used", []string{"--workers=0"}, []string{"--workers is 0: give at least 1"}},
		{"the kubeconfig isn't there", []string{"--kubeconfig=" + filepath.Join(t.TempDir(), "none")},
			[]string{"find the API server: ", "none", "(outside a cluster, give --kubeconfig)"}},
		{"there is no kubeconfig", nil, []string{"find the API server: ", "(outside a cluster, give --kubeconfig)"}},
		{"the address is in use", []string{kubeconfig, "--listen-address=" + taken.Addr().String()},
			[]string{"address already in use", "give another --listen-address"}},
		{"the API server can't be reached", []string{kubeconfig, "--listen-address="},
			[]string{"read the lease ", "connection refused", "check that the API server can be reached"}},
		{"the API server can't be reached, and no lease is needed", []string{kubeconfig, "--listen-address=", "--leader-elect=false", "--cache-sync-timeout=1s"},
			[]string{"3 of 3 caches not synced within 1s", "pods: unreachable", "connection refused"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
			t.Setenv("KUBERNETES_SERVICE_HOST", "")
			useOwnRegistry(t)
			ctx, end := context.WithTimeout(t.Context(), time.Minute)
			defer end()
			err := run(ctx, defaults(t, test.arguments...))
			if err == nil {
				t.Fatal("got no error")
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("the error doesn't contain %q: %v", want, err)
				}
			}
		})
	}
}

// useOwnRegistry lets run be called more than once in a process.
func useOwnRegistry(t *testing.T) {
	t.Helper()
	shared := registry
	registry = prometheus.NewRegistry()
	t.Cleanup(func() { registry = shared })
}

func TestToBeAskedToEndWhileStartingIsNoError(t *testing.T) {
	useOwnRegistry(t)
	ctx, end := context.WithCancel(t.Context())
	end()
	if err := run(ctx, defaults(t, "--kubeconfig="+unreachable(t), "--listen-address=")); err != nil {
		t.Error(err)
	}
}

func TestTheKubeconfigAndTheLimitsReachTheClients(t *testing.T) {
	o := defaults(t, "--kubeconfig="+unreachable(t), "--kube-api-qps=7", "--kube-api-burst=9")
	config, err := o.restConfig()
	if err != nil {
		t.Fatal(err)
	}
	if config.QPS != 7 || config.Burst != 9 {
		t.Errorf("got %g requests per second and a burst of %d, want 7 and 9", config.QPS, config.Burst)
	}
	if !strings.HasSuffix(config.UserAgent, "/warmpool-controller") {
		t.Errorf("got user agent %q", config.UserAgent)
	}
}

// unreachable returns a kubeconfig of an API server that isn't there: its port is one
// that was free a moment ago.
func unreachable(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "kubeconfig")
	content := `{"apiVersion": "v1", "kind": "Config", "current-context": "c",
		"clusters": [{"name": "c", "cluster": {"server": "http://` + address + `"}}],
		"contexts": [{"name": "c", "context": {"cluster": "c"}}]}`
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestTheTransformDropsManagedFieldsAndKeepsTheRest(t *testing.T) {
	pod := aPod("a", func(pod *corev1.Pod) {
		pod.ResourceVersion = "7"
		pod.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubectl"}}
	})
	got, err := dropManagedFields(pod)
	if err != nil {
		t.Fatal(err)
	}
	if got != any(pod) || pod.ManagedFields != nil || pod.ResourceVersion != "7" || pod.Name != "a" {
		t.Errorf("got %+v", got)
	}
	tombstone := cache.DeletedFinalStateUnknown{Key: "ci/a"}
	if got, err := dropManagedFields(tombstone); err != nil || got != any(tombstone) {
		t.Errorf("got %v, %v of a tombstone, want itself", got, err)
	}
}

// client-go drops events of an object that has many; a warning must not be among them.
func TestAWarningIsRecordedOfAPoolThatHasToldOfManyPods(t *testing.T) {
	correlator := record.NewEventCorrelatorWithOptions(record.CorrelatorOptions{SpamKeyFunc: eventBudget})
	dropped := func(kind, message string) bool {
		result, err := correlator.EventCorrelate(&corev1.Event{
			ObjectMeta:     metav1.ObjectMeta{Namespace: "ci", Name: message},
			InvolvedObject: corev1.ObjectReference{Kind: "WarmPool", Namespace: "ci", Name: "runners", UID: "uid-of-runners"},
			Source:         corev1.EventSource{Component: component},
			Type:           kind, Reason: kind, Message: message,
		})
		if err != nil {
			t.Fatal(err)
		}
		return result.Skip
	}
	some := false
	for i := range 100 {
		some = dropped(corev1.EventTypeNormal, fmt.Sprintf("deleted pod %d", i)) || some
	}
	if !some {
		t.Error("none of 100 events was dropped, so this test shows nothing")
	}
	if dropped(corev1.EventTypeWarning, "the quota is exceeded") {
		t.Error("a warning was dropped")
	}
}
