package faultproxy_test

// What the tests share: a control plane, a namespace and a proxy for each test, and
// informers of every make.

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"warmpool.dev/controller/hack/controlplane"
	"warmpool.dev/controller/test/faultproxy"
)

var controlPlane *controlplane.ControlPlane

func TestMain(m *testing.M) {
	// Reflectors complain of each fault, as they should.
	klog.SetSlogLogger(slog.New(slog.DiscardHandler))
	// They wait for most of their time.
	flag.Parse()
	if err := flag.Set("test.parallel", "16"); err != nil {
		panic(err)
	}
	os.Exit(controlplane.RunTests(m, controlplane.Options{}, func(cp *controlplane.ControlPlane) { controlPlane = cp }))
}

// deadline is many times what an unloaded machine needs for any one step.
const deadline = 30 * time.Second

func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// mode is how a client talks.
type mode struct {
	name      string
	protobuf  bool
	http1     bool
	watchList bool
}

var modes = []mode{
	{name: "JSON, HTTP/2, WatchList", watchList: true},
	{name: "JSON, HTTP/2, list", watchList: false},
	{name: "JSON, HTTP/1.1, WatchList", http1: true, watchList: true},
	{name: "JSON, HTTP/1.1, list", http1: true},
	{name: "protobuf, HTTP/2, WatchList", protobuf: true, watchList: true},
	{name: "protobuf, HTTP/2, list", protobuf: true},
	{name: "protobuf, HTTP/1.1, WatchList", protobuf: true, http1: true, watchList: true},
	{name: "protobuf, HTTP/1.1, list", protobuf: true, http1: true},
}

// inEachMode runs a test once for each way in which a client can talk.
func inEachMode(t *testing.T, test func(t *testing.T, r *rig)) {
	t.Parallel()
	for _, m := range modes {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			test(t, newRig(t, m))
		})
	}
}

// rig is one test's proxy, clients and namespace.
type rig struct {
	t         *testing.T
	mode      mode
	proxy     *faultproxy.Proxy
	namespace string
	direct    *kubernetes.Clientset // past the proxy
	config    *rest.Config          // through the proxy
	client    *kubernetes.Clientset // through the proxy
}

func newRig(t *testing.T, m mode) *rig {
	t.Helper()
	return newRigAt(t, m, controlPlane)
}

func newRigAt(t *testing.T, m mode, cp *controlplane.ControlPlane) *rig {
	t.Helper()
	target := configOf(t, cp.APIServers[0])
	proxy, err := faultproxy.Start(faultproxy.Options{Name: "controller", Target: target, HTTP1: m.http1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(proxy.Close)
	config := proxy.Config(target)
	config.ContentType = runtime.ContentTypeJSON
	if m.protobuf {
		config.ContentType = runtime.ContentTypeProtobuf
	}
	r := &rig{
		t: t, mode: m, proxy: proxy, config: config,
		direct: kubernetes.NewForConfigOrDie(target),
		client: kubernetes.NewForConfigOrDie(config),
	}
	r.namespace = r.newNamespace(cp)
	return r
}

func configOf(t *testing.T, server *controlplane.APIServer) *rest.Config {
	t.Helper()
	path, err := server.Kubeconfig(controlplane.Admin)
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		t.Fatal(err)
	}
	config.QPS = -1
	return config
}

func (r *rig) newNamespace(cp *controlplane.ControlPlane) string {
	r.t.Helper()
	ns, err := r.direct.CoreV1().Namespaces().Create(r.t.Context(),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "faultproxy-"}}, metav1.CreateOptions{})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		err := r.direct.CoreV1().Namespaces().Delete(context.Background(), ns.Name, metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			r.t.Logf("delete namespace %s: %v", ns.Name, err)
		}
	})
	if cp.ControllerManager != nil { // it makes both of these, which would be in the way
		eventually(r.t, "the namespace's account and ConfigMap", func() bool {
			_, noAccount := r.direct.CoreV1().ServiceAccounts(ns.Name).Get(r.t.Context(), "default", metav1.GetOptions{})
			_, noMap := r.direct.CoreV1().ConfigMaps(ns.Name).Get(r.t.Context(), "kube-root-ca.crt", metav1.GetOptions{})
			return noAccount == nil && noMap == nil
		})
	}
	return ns.Name
}

// configMap builds one with a value.
func configMap(name, value string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"name": name}},
		Data:       map[string]string{"value": value},
	}
}

// create, set and remove go past the proxy.
func (r *rig) create(name string) *corev1.ConfigMap {
	r.t.Helper()
	cm, err := r.direct.CoreV1().ConfigMaps(r.namespace).Create(r.t.Context(), configMap(name, "1"), metav1.CreateOptions{})
	if err != nil {
		r.t.Fatal(err)
	}
	return cm
}

func (r *rig) set(name, value string) *corev1.ConfigMap {
	r.t.Helper()
	cm, err := r.direct.CoreV1().ConfigMaps(r.namespace).Update(r.t.Context(), configMap(name, value), metav1.UpdateOptions{})
	if err != nil {
		r.t.Fatal(err)
	}
	return cm
}

func (r *rig) remove(name string) {
	r.t.Helper()
	if err := r.direct.CoreV1().ConfigMaps(r.namespace).Delete(r.t.Context(), name, metav1.DeleteOptions{}); err != nil {
		r.t.Fatal(err)
	}
}

// exists asks the API server, past the proxy.
func (r *rig) exists(name string) bool {
	r.t.Helper()
	_, err := r.direct.CoreV1().ConfigMaps(r.namespace).Get(r.t.Context(), name, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		r.t.Fatal(err)
	}
	return err == nil
}

// createThrough goes through the proxy.
func (r *rig) createThrough(ctx context.Context, name string) (*corev1.ConfigMap, error) {
	return r.client.CoreV1().ConfigMaps(r.namespace).Create(ctx, configMap(name, "1"), metav1.CreateOptions{})
}

// cached is an informer of ConfigMaps through the proxy, and what its handler saw.
type cached struct {
	t        *testing.T
	informer cache.SharedIndexInformer

	mu   sync.Mutex
	seen []string
}

// listWatch lists and watches through the proxy, with WatchList or without.
type listWatch struct {
	*cache.ListWatch
	watchList bool
}

// IsWatchListSemanticsUnSupported tells the reflector whether to try WatchList.
func (l listWatch) IsWatchListSemanticsUnSupported() bool { return !l.watchList }

// startInformer starts an informer and doesn't wait for it.
func (r *rig) startInformer() *cached {
	r.t.Helper()
	client := r.client.CoreV1().ConfigMaps(r.namespace)
	lw := listWatch{watchList: r.mode.watchList, ListWatch: &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return client.List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return client.Watch(ctx, o)
		},
	}}
	c := &cached{t: r.t, informer: cache.NewSharedIndexInformer(lw, &corev1.ConfigMap{}, 0, cache.Indexers{})}
	_, err := c.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { c.saw("add", obj) },
		UpdateFunc: func(_, obj any) { c.saw("update", obj) },
		DeleteFunc: func(obj any) { c.saw("delete", obj) },
	})
	if err != nil {
		r.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { c.informer.RunWithContext(ctx) })
	r.t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return c
}

// informer starts an informer and waits until it has synced and watches.
func (r *rig) informer() *cached {
	r.t.Helper()
	c := r.startInformer()
	eventually(r.t, "the informer to sync", c.informer.HasSynced)
	if err := r.proxy.WaitOpenWatches(within(r.t, deadline), 1, faultproxy.Match{Resource: "configmaps"}); err != nil {
		r.t.Fatal(err)
	}
	return c
}

func (c *cached) saw(what string, obj any) {
	if tombstone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		what, obj = "tombstone", tombstone.Obj
	}
	cm := obj.(*corev1.ConfigMap)
	if cm.Name == "kube-root-ca.crt" {
		return // the controller manager's, where there is one
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen = append(c.seen, fmt.Sprintf("%s %s=%s", what, cm.Name, cm.Data["value"]))
}

// events are what the handler saw, in order.
func (c *cached) events() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.seen)
}

// wait waits until the handler has seen exactly these events.
func (c *cached) wait(want ...string) {
	c.t.Helper()
	eventually(c.t, fmt.Sprintf("the events %q, got %q", want, c.events()), func() bool { return slices.Equal(c.events(), want) })
}

// value is what the cache holds under a name; empty: nothing.
func (c *cached) value(namespace, name string) string {
	c.t.Helper()
	obj, ok, err := c.informer.GetStore().GetByKey(namespace + "/" + name)
	if err != nil {
		c.t.Fatal(err)
	}
	if !ok {
		return ""
	}
	return obj.(*corev1.ConfigMap).Data["value"]
}

// eventually waits for a condition.
func eventually(t *testing.T, what string, check func() bool) {
	t.Helper()
	ctx := within(t, deadline)
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	for !check() {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			t.Fatalf("waited %s for %s", deadline, what)
		}
	}
}

// always checks that a condition stays true for a while: long enough for a proxy that
// is wrong to show it, and no proxy that is right ever fails it.
func always(t *testing.T, d time.Duration, what string, check func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for {
		if !check() {
			t.Fatalf("not for %s: %s", d, what)
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

func waitFired(t *testing.T, f *faultproxy.Fault, n int) {
	t.Helper()
	if err := f.WaitFired(within(t, deadline), n); err != nil {
		t.Fatal(err)
	}
}
