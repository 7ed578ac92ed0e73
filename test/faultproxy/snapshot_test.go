package faultproxy_test

// Time travel: F5 of the scenarios.

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/metadata"

	"warmpool.dev/controller/test/faultproxy"
)

var configMapsResource = corev1.SchemeGroupVersion.WithResource("configmaps")

func (r *rig) record() *faultproxy.Snapshot {
	r.t.Helper()
	s, err := r.proxy.Record(r.t.Context(), r.namespace, configMapsResource, corev1.SchemeGroupVersion.WithResource("pods"))
	if err != nil {
		r.t.Fatal(err)
	}
	return s
}

func TestOldWorldIsServedUntilReleasedAndThenCaughtUpWith(t *testing.T) {
	inEachMode(t, func(t *testing.T, r *rig) {
		r.create("old")
		r.create("changed")
		s := r.record()
		r.remove("old")
		r.set("changed", "2")
		r.create("new")
		travel := r.proxy.Add(faultproxy.Rule{Do: faultproxy.OldWorld(s)})
		c := r.informer()
		c.wantOld(r.namespace)
		list, err := r.list(t.Context(), metav1.ListOptions{LabelSelector: "name=old"})
		if err != nil || len(list.Items) != 1 || list.ResourceVersion != s.ResourceVersion {
			t.Errorf("a list by label: %v, %v; want the old one, at version %s", list, err, s.ResourceVersion)
		}
		if _, err := r.client.CoreV1().ConfigMaps(r.namespace).Get(t.Context(), "new", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("a get of what is new: %v", err)
		}
		if _, err := r.client.CoreV1().ConfigMaps(r.namespace).Get(t.Context(), "old", metav1.GetOptions{}); err != nil {
			t.Errorf("a get of what is gone: %v", err)
		}
		if _, err := r.createThrough(t.Context(), "written"); err != nil {
			t.Errorf("a write: %v", err)
		}
		travel.Release()
		eventually(t, "the cache to catch up", func() bool {
			return c.value(r.namespace, "old") == "" && c.value(r.namespace, "changed") == "2" &&
				c.value(r.namespace, "new") == "1" && c.value(r.namespace, "written") == "1"
		})
	})
}

// wantOld checks that the cache holds the snapshot and nothing later.
func (c *cached) wantOld(namespace string) {
	c.t.Helper()
	eventually(c.t, "the snapshot's objects", func() bool {
		seen := c.events()
		slices.Sort(seen)
		return slices.Equal(seen, []string{"add changed=1", "add old=1"})
	})
	if got := c.value(namespace, "new"); got != "" {
		c.t.Errorf("the cache holds new=%q, want nothing of it", got)
	}
}

func TestLaggingServerServesWhatMayBeOldAndRefusesWhatMayNot(t *testing.T) {
	inEachMode(t, func(t *testing.T, r *rig) {
		r.create("old")
		s := r.record()
		newer := r.set("old", "2")
		travel := r.proxy.Add(faultproxy.Rule{Match: faultproxy.Match{Verb: faultproxy.Reads}, Do: faultproxy.LaggingServer(s)})
		for _, c := range []struct {
			version string
			told    func(error) bool
		}{
			{"0", func(err error) bool { return err == nil }},
			{s.ResourceVersion, func(err error) bool { return err == nil }},
			{"", apierrors.IsTimeout},
			{newer.ResourceVersion, func(err error) bool { return apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge) }},
		} {
			ctx := within(t, deadline)
			list := &corev1.ConfigMapList{}
			err := r.client.CoreV1().RESTClient().Get().MaxRetries(0).Namespace(r.namespace).Resource("configmaps").
				Param("resourceVersion", c.version).Do(ctx).Into(list)
			if !c.told(err) {
				t.Errorf("a list at version %q: %v", c.version, err)
			}
			if err == nil && (list.Items[0].Data["value"] != "1" && list.Items[0].Name == "old") {
				t.Errorf("a list at version %q holds %v, want the old value", c.version, list.Items)
			}
		}
		travel.Release()
		if _, err := r.list(t.Context(), metav1.ListOptions{}); err != nil {
			t.Errorf("once the server has caught up: %v", err)
		}
	})
}

func TestWatchOfALaggingServerAtALaterVersionIsSilentUntilItCatchesUp(t *testing.T) {
	inEachMode(t, func(t *testing.T, r *rig) {
		r.create("a")
		s := r.record()
		seen := r.set("a", "2")
		travel := r.proxy.Add(faultproxy.Rule{Do: faultproxy.LaggingServer(s)})
		w, err := r.client.CoreV1().ConfigMaps(r.namespace).Watch(t.Context(), metav1.ListOptions{ResourceVersion: seen.ResourceVersion})
		if err != nil {
			t.Fatal(err)
		}
		defer w.Stop()
		r.set("a", "3")
		select {
		case e := <-w.ResultChan():
			t.Fatalf("a server that lags sent %v", e)
		case <-within(t, 100*time.Millisecond).Done():
		}
		travel.Release()
		select {
		case e := <-w.ResultChan():
			if cm, ok := e.Object.(*corev1.ConfigMap); !ok || cm.Data["value"] != "3" {
				t.Errorf("the first event is %v, want that of value 3", e)
			}
		case <-within(t, deadline).Done():
			t.Error("it never caught up")
		}
	})
}

func TestInitialListOfALaggingServerEndsInAnErrorIfItMustBeFresh(t *testing.T) {
	inEachMode(t, func(t *testing.T, r *rig) {
		s := r.record()
		r.proxy.Add(faultproxy.Rule{Do: faultproxy.LaggingServer(s)})
		yes := true
		w, err := r.client.CoreV1().ConfigMaps(r.namespace).Watch(t.Context(), metav1.ListOptions{
			SendInitialEvents: &yes, AllowWatchBookmarks: true, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
		})
		if err != nil {
			t.Fatal(err)
		}
		defer w.Stop()
		select {
		case e := <-w.ResultChan():
			if !apierrors.IsTimeout(apierrors.FromObject(e.Object)) {
				t.Errorf("the first event is %v, want a timeout", e)
			}
		case <-within(t, deadline).Done():
			t.Error("nothing came")
		}
	})
}

func TestSnapshotIsServedToMetadataClients(t *testing.T) {
	t.Parallel()
	r := newRig(t, modes[4])
	r.create("old")
	s := r.record()
	r.remove("old")
	travel := r.proxy.Add(faultproxy.Rule{Do: faultproxy.OldWorld(s)})
	client := metadata.NewForConfigOrDie(r.config).Resource(configMapsResource).Namespace(r.namespace)
	list, err := client.List(t.Context(), metav1.ListOptions{LabelSelector: "name=old"})
	if err != nil || len(list.Items) != 1 || list.Items[0].Name != "old" {
		t.Fatalf("the list: %v, %v; want the old one", list, err)
	}
	w, err := client.Watch(t.Context(), metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	travel.Release()
	select {
	case e := <-w.ResultChan():
		if o, ok := e.Object.(*metav1.PartialObjectMetadata); !ok || o.Name != "old" || e.Type != "DELETED" {
			t.Errorf("the first event is %v, want the deletion", e)
		}
	case <-within(t, deadline).Done():
		t.Error("it never caught up")
	}
}
