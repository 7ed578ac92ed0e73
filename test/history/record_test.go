package history

// The recorder, at a real etcd under a real API server.

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"

	"warmpool.dev/controller/hack/controlplane"
)

var controlPlane *controlplane.ControlPlane

func TestMain(m *testing.M) {
	os.Exit(controlplane.RunTests(m, controlplane.Options{}, func(cp *controlplane.ControlPlane) { controlPlane = cp }))
}

// configMaps stand for other resources here.
var configMaps = schema.GroupResource{Resource: "configmaps"}

func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func clientOf(t *testing.T, cp *controlplane.ControlPlane) *kubernetes.Clientset {
	t.Helper()
	path, err := cp.Kubeconfig(controlplane.Admin)
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		t.Fatal(err)
	}
	config.QPS = -1
	return kubernetes.NewForConfigOrDie(config)
}

func namespaceOf(t *testing.T, cp *controlplane.ControlPlane) (*kubernetes.Clientset, string) {
	t.Helper()
	client := clientOf(t, cp)
	ns, err := client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "history-"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		err := client.CoreV1().Namespaces().Delete(context.Background(), ns.Name, metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			t.Log(err)
		}
	})
	if cp.ControllerManager != nil { // no Pod without an account
		ticker := time.NewTicker(10 * time.Millisecond)
		defer ticker.Stop()
		for ctx := within(t); ; {
			if _, err := client.CoreV1().ServiceAccounts(ns.Name).Get(ctx, "default", metav1.GetOptions{}); err == nil {
				break
			} else if ctx.Err() != nil {
				t.Fatal(err)
			}
			<-ticker.C
		}
	}
	return client, ns.Name
}

func recordAt(t *testing.T, cp *controlplane.ControlPlane, recording Recording) *Recorder {
	t.Helper()
	recording.Endpoints = []string{cp.EtcdURL}
	recorder, err := Record(within(t), recording)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(recorder.Close)
	return recorder
}

func setMap(t *testing.T, client *kubernetes.Clientset, namespace, name, value string) string {
	t.Helper()
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"value": value}}
	got, err := client.CoreV1().ConfigMaps(namespace).Update(t.Context(), cm, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) {
		got, err = client.CoreV1().ConfigMaps(namespace).Create(t.Context(), cm, metav1.CreateOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
	return got.ResourceVersion
}

// short are the versions in short, each as "resource name value@resourceVersion".
func short(h *History) []string {
	var all []string
	for i := range h.Versions {
		v := &h.Versions[i]
		if v.Object.GetName() == "kube-root-ca.crt" {
			continue // the controller manager's, where there is one
		}
		what := v.Resource.Resource + " " + v.Object.GetName()
		if data, ok := v.Object.Object["data"].(map[string]any); ok {
			what += fmt.Sprint(" ", data["value"])
		}
		if v.Deleted {
			what += " deleted"
		}
		if v.Initial {
			what += " initial"
		}
		all = append(all, what+"@"+v.Object.GetResourceVersion())
	}
	return all
}

func TestEveryVersionIsRecordedInOneOrder(t *testing.T) {
	t.Parallel()
	client, ns := namespaceOf(t, controlPlane)
	_, elsewhere := namespaceOf(t, controlPlane)
	var want []string
	note := func(format string, args ...any) { want = append(want, fmt.Sprintf(format, args...)) }
	note("configmaps a 1 initial@%s", setMap(t, client, ns, "a", "1"))
	recorder := recordAt(t, controlPlane, Recording{
		Namespaces: []string{ns},
		Resources:  []schema.GroupResource{Pods, configMaps},
	})
	for i := range 20 {
		note("configmaps a %d@%s", i+2, setMap(t, client, ns, "a", fmt.Sprint(i+2)))
		setMap(t, client, elsewhere, "a", "x")
		pod, err := createPod(t, client, ns, fmt.Sprintf("p%d", i))
		if err != nil {
			t.Fatal(err)
		}
		note("pods %s@%s", pod.Name, pod.ResourceVersion)
	}
	gone, err := deletePod(t, client, ns, "p0")
	if err != nil {
		t.Fatal(err)
	}
	note("pods p0@%d", revisionOf(gone)-1) // marked, then removed
	note("pods p0 deleted@%s", gone)
	h, err := recorder.History(within(t))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, short(h)); diff != "" {
		t.Errorf("the history (-want +got):\n%s", diff)
	}
	last := h.Versions[len(h.Versions)-1]
	if last.pod == nil || last.pod.Spec.NodeName != "node" {
		t.Errorf("the last state of the Pod that is gone is %v, want all of it", last.Object.Object)
	}
}

// createPod creates a Pod on a node that doesn't exist.
func createPod(t *testing.T, client *kubernetes.Clientset, namespace, name string) (*corev1.Pod, error) {
	t.Helper()
	return client.CoreV1().Pods(namespace).Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PodSpec{
			NodeName:                      "node",
			AutomountServiceAccountToken:  ptr.To(false),
			TerminationGracePeriodSeconds: ptr.To(int64(0)),
			Containers:                    []corev1.Container{{Name: "c", Image: "i"}},
		},
	}, metav1.CreateOptions{})
}

// deletePod returns the version of the deletion.
func deletePod(t *testing.T, client *kubernetes.Clientset, namespace, name string) (string, error) {
	t.Helper()
	pod := &corev1.Pod{}
	err := client.CoreV1().RESTClient().Delete().Namespace(namespace).Resource("pods").Name(name).
		Body(&metav1.DeleteOptions{GracePeriodSeconds: ptr.To(int64(0))}).Do(t.Context()).Into(pod)
	return pod.ResourceVersion, err
}

func TestWaitForSeesTheWorldAsItIsRecorded(t *testing.T) {
	t.Parallel()
	client, ns := namespaceOf(t, controlPlane)
	recorder := recordAt(t, controlPlane, Recording{Namespaces: []string{ns}})
	seen := make(chan error, 1)
	go func() {
		seen <- recorder.WaitFor(within(t), "the Pod", func(w *World) bool { return len(w.Pods) == 1 })
	}()
	pod, err := createPod(t, client, ns, "p")
	if err != nil {
		t.Fatal(err)
	}
	if err := <-seen; err != nil {
		t.Error(err)
	}
	if _, err := deletePod(t, client, ns, "p"); err != nil {
		t.Fatal(err)
	}
	err = recorder.WaitFor(within(t), "the Pod's end", func(w *World) bool { return w.Pods[pod.UID] == nil })
	if err != nil {
		t.Error(err)
	}
	soon, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	err = recorder.WaitFor(soon, "the impossible", func(*World) bool { return false })
	if err == nil || err.Error() != "waiting for the impossible: context deadline exceeded" {
		t.Errorf("the error is %v", err)
	}
}

func TestSyncNeedsNobodyToWrite(t *testing.T) {
	t.Parallel()
	_, ns := namespaceOf(t, controlPlane)
	recorder := recordAt(t, controlPlane, Recording{Namespaces: []string{ns}})
	for range 5 {
		if err := recorder.Sync(within(t)); err != nil {
			t.Fatal(err)
		}
	}
}

func TestStoredHistoryIsJudgedLikeTheFirst(t *testing.T) {
	t.Parallel()
	client, ns := namespaceOf(t, controlPlane)
	recorder := recordAt(t, controlPlane, Recording{Namespaces: []string{ns}})
	pod, err := createPod(t, client, ns, "p")
	if err != nil {
		t.Fatal(err)
	}
	for _, uid := range []types.UID{"first", "second"} { // I1
		patch := fmt.Sprintf(`{"metadata":{"ownerReferences":[{"apiVersion":"warmpool.dev/v1alpha1","kind":"PodClaim","name":"claim","uid":%q,"controller":true}]}}`, uid)
		if _, err := client.CoreV1().Pods(ns).Patch(t.Context(), pod.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	h, err := recorder.History(within(t))
	if err != nil {
		t.Fatal(err)
	}
	var file bytes.Buffer
	if err := h.Write(&file); err != nil {
		t.Fatal(err)
	}
	read, err := Read(&file)
	if err != nil {
		t.Fatal(err)
	}
	found := I1(read)
	if len(found) != 1 || found[0].Message != fmt.Sprintf("Pod %s is given to claim second, and was to claim first", pod.UID) {
		t.Errorf("the stored history breaks I1 by %v", found)
	}
	if diff := cmp.Diff(Judge(h, Terms{}), Judge(read, Terms{})); diff != "" {
		t.Errorf("the stored history is judged otherwise (-first +stored):\n%s", diff)
	}
}

func TestRecordingOutlivesEtcdAndEndsAtAGap(t *testing.T) {
	t.Parallel()
	cp := controlplane.ForTest(t, controlplane.Options{})
	client, ns := namespaceOf(t, cp)
	recorder := recordAt(t, cp, Recording{Namespaces: []string{ns}, Resources: []schema.GroupResource{configMaps}})
	setMap(t, client, ns, "a", "1")
	if err := cp.Etcd.Restart(within(t)); err != nil {
		t.Fatal(err)
	}
	setMap(t, client, ns, "a", "2")
	h, err := recorder.History(within(t))
	if err != nil {
		t.Fatal(err)
	}
	if n := len(short(h)); n != 2 {
		t.Errorf("the history is %q, want both versions", short(h))
	}

	// The watch comes too late for a revision that is compacted.
	response, err := recorder.client.Get(within(t), "/")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := recorder.client.Compact(within(t), response.Header.Revision); err != nil {
		t.Fatal(err)
	}
	recorder.follow(within(t), recorder.client.Watch(within(t), registry, clientv3.WithPrefix(), clientv3.WithRev(1)))
	if _, err := recorder.History(within(t)); err == nil || !strings.Contains(err.Error(), "gap") {
		t.Errorf("a recording with a gap ended with %v", err)
	}
	err = recorder.WaitFor(within(t), "anything", func(*World) bool { return true })
	if err == nil || !strings.Contains(err.Error(), "gap") {
		t.Errorf("a recording with a gap can be waited on: %v", err)
	}
}
