{{/* The pod template of a component: everything that the three share. */}}
{{- define "turnwire.pod" -}}
metadata:
  labels:
    {{- include "turnwire.labels" . | nindent 4 }}
    {{- with .values.podLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  annotations:
    # Settings and files are read once, at the start: a change of them must replace the pod.
    checksum/config: {{ printf "%s%s" (include "turnwire.settings" .) (toYaml .values.files) | sha256sum }}
    {{- with .values.podAnnotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  serviceAccountName: {{ include "turnwire.serviceAccount" .root }}
  automountServiceAccountToken: false
  enableServiceLinks: false
  terminationGracePeriodSeconds: {{ include "turnwire.gracePeriod" . }}
  securityContext:
    runAsNonRoot: true
    runAsUser: 65532
    runAsGroup: 65532
    fsGroup: 65532
    fsGroupChangePolicy: OnRootMismatch
    seccompProfile: {type: RuntimeDefault}
  {{- with .root.Values.imagePullSecrets }}
  imagePullSecrets:
    {{- range . }}
    - name: {{ . }}
    {{- end }}
  {{- end }}
  {{- with .values.priorityClassName }}
  priorityClassName: {{ . }}
  {{- end }}
  {{- with .values.nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .values.tolerations }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .values.affinity }}
  affinity:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  containers:
    - name: {{ .name }}
      image: {{ include "turnwire.image" .root }}
      imagePullPolicy: {{ .root.Values.image.pullPolicy }}
      command: ["turnwire-{{ .name }}"]
      envFrom:
        - configMapRef:
            name: {{ include "turnwire.fullname" . }}
      {{- with .values.secretEnv }}
      env:
        {{- range . }}
        - name: {{ .name }}
          valueFrom:
            secretKeyRef: {name: {{ .secretName }}, key: {{ .key }}}
        {{- end }}
      {{- end }}
      ports:
        - name: grpc
          containerPort: {{ include "turnwire.port" . }}
      # Start-up may replay a log; after it the two probes ask different questions: readiness whether the service
      # takes calls (NOT_SERVING while it drains), liveness whether the process still answers at all.
      startupProbe:
        {{- include "turnwire.probe" (merge (dict "service" "liveness") .) | nindent 8 }}
        periodSeconds: 2
        failureThreshold: 60
      readinessProbe:
        {{- include "turnwire.probe" (merge (dict "service" (include "turnwire.readiness" .)) .) | nindent 8 }}
        periodSeconds: 5
        timeoutSeconds: 3
        failureThreshold: 2
      livenessProbe:
        {{- include "turnwire.probe" (merge (dict "service" "liveness") .) | nindent 8 }}
        periodSeconds: 10
        timeoutSeconds: 5
        failureThreshold: 3
      {{- with .values.resources }}
      resources:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      securityContext:
        allowPrivilegeEscalation: false
        readOnlyRootFilesystem: true
        capabilities: {drop: [ALL]}
      volumeMounts:
        {{- include "turnwire.mounts" . | nindent 8 }}
  volumes:
    {{- include "turnwire.volumes" . | nindent 4 }}
{{- end -}}

{{/* The kubelet speaks plaintext only; with TLS the probe program in the image asks from inside the pod. */}}
{{- define "turnwire.probe" -}}
{{- if .root.Values.tls.secretName -}}
exec:
  command:
    - grpc_health_probe
    - -addr=127.0.0.1:{{ include "turnwire.port" . }}
    - -service={{ .service }}
    - -tls
    - -tls-ca-cert=/etc/turnwire/tls/ca.crt
    - -tls-server-name={{ include "turnwire.fullname" . }}
    {{- if .root.Values.tls.mutual }}
    - -tls-client-cert=/etc/turnwire/tls/tls.crt
    - -tls-client-key=/etc/turnwire/tls/tls.key
    {{- end }}
{{- else -}}
grpc:
  port: {{ include "turnwire.port" . }}
  service: {{ .service }}
{{- end -}}
{{- end -}}

{{- define "turnwire.mounts" -}}
- {name: data, mountPath: /var/lib/turnwire}
- {name: tmp, mountPath: /tmp}
{{- if .values.files }}
- {name: files, mountPath: /etc/turnwire/files, readOnly: true}
{{- end }}
{{- if .root.Values.tls.secretName }}
- {name: tls, mountPath: /etc/turnwire/tls, readOnly: true}
{{- end }}
{{- if .root.Values.auth.secretName }}
- {name: auth, mountPath: /etc/turnwire/auth, readOnly: true}
{{- end }}
{{- end -}}

{{- define "turnwire.volumes" -}}
- name: data
  {{- if .values.persistence.enabled }}
  persistentVolumeClaim:
    claimName: {{ default (include "turnwire.fullname" .) .values.persistence.existingClaim }}
  {{- else }}
  emptyDir: {sizeLimit: {{ .values.persistence.size }}}
  {{- end }}
- name: tmp
  emptyDir: {sizeLimit: 1Gi}
{{- if .values.files }}
- name: files
  configMap: {name: {{ include "turnwire.fullname" . }}-files}
{{- end }}
{{- if .root.Values.tls.secretName }}
- name: tls
  secret: {secretName: {{ .root.Values.tls.secretName }}, defaultMode: 0440}
{{- end }}
{{- if .root.Values.auth.secretName }}
- name: auth
  secret:
    secretName: {{ .root.Values.auth.secretName }}
    defaultMode: 0440
    items:
      - {key: {{ .root.Values.auth.tokensKey }}, path: {{ .root.Values.auth.tokensKey }}}
      {{- if eq .name "runtime" }}
      - {key: {{ .root.Values.auth.runtimeTokenKey }}, path: {{ .root.Values.auth.runtimeTokenKey }}}
      {{- end }}
{{- end }}
{{- end -}}
